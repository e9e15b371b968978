"""What it costs to measure a large fleet. `python -m bench.signals --help` says how to run it."""
