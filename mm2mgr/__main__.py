"""`python -m mm2mgr`."""

from mm2mgr.cli import main

main()
