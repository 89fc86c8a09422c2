"""The command `samples`: work on a store of samples as a whole."""

from __future__ import annotations

from pathlib import Path

import click

from mm2mgr.cli.options import StoreLocation


@click.group()
def samples() -> None:
    """Convert samples of an earlier version into tables."""


@samples.command()
@click.argument("old", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.argument("new", type=StoreLocation())
def convert(old: Path, new: Path) -> int:
    """Copy the samples of an earlier version of mm2mgr (folder OLD) into Delta Lake tables (folder or URI NEW).

    OLD stays as it is. Roll-ups are taken over where their samples were removed already; `mm2mgr throughput` makes the others
    again.

    \b
    Example:
      mm2mgr samples convert .mm2mgr/samples .mm2mgr/tables
    """
    from mm2mgr.operations.samples import convert_samples
    from mm2mgr.output.console import say, talk

    def warn(message: str) -> None:
        talk(f"  {message}", style="yellow")

    done = convert_samples(old, new, warn, lambda hour: talk(f"  {hour}"))
    say(
        f"{done.samples} samples, {done.roll_ups} hours of roll-ups and {done.task_rows} task rows of {old} are in {new}"
    )
    return 0
