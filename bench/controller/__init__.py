"""What steering many targets costs. `python -m bench.controller --help` says how to run it."""
