"""`python -m mm2mgr`; spark-submit runs this file by its path."""

import sys
from pathlib import Path

if not __package__:  # by its path: this folder would lead the search, and its `secrets` stand before Python's own
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from mm2mgr.cli import main

main()
