"""`python -m specpilot`."""

from specpilot.cli.main import main

main()
