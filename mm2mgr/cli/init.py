"""The command init."""

from __future__ import annotations

from pathlib import Path

import click

from mm2mgr import operations


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default="clusters")
def init(folder: Path) -> None:
    """Write a commented starter tree into FOLDER (default: clusters).

    Existing files are never overwritten.

    \b
    Example:
      mm2mgr init && mm2mgr render --origins
    """
    from mm2mgr.output.console import say

    for path in operations.init(folder):
        say(str(path))
