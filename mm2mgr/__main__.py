"""The command `mm2mgr`, and `python -m mm2mgr`; spark-submit runs this file by its path."""

import gc
import sys
from pathlib import Path


def main() -> None:
    """Import the command line and run it."""
    # what imports make is no garbage, and looking for some takes a twentieth of `--help`; `cli.main` enables it
    gc.disable()
    from mm2mgr.cli import main

    main()


if __name__ == "__main__":
    if not __package__:  # by its path: this folder would lead the search, and its `secrets` stand before Python's own
        sys.path[0] = str(Path(__file__).resolve().parents[1])
    main()
