"""The command demo."""

from __future__ import annotations

from pathlib import Path

from mm2mgr.cli.options import Count, command, folder_option, option


@command("First hour", 1)
@option("--keep", is_flag=True, help="Leave everything running at the end, to play with.")
@folder_option(".mm2mgr/demo", "Where the demo keeps its files.")
@option("--seconds", type=Count(5, 600), default=15, help="How long to measure traffic.")
def demo(keep: bool, directory: Path, seconds: int) -> int:
    """Run the whole workflow on this machine, with real Kafka.

    Declares, measures, sizes, plans, applies, mirrors, and proves the result.
    Starts four Kafka clusters and two Connect workers, keeps producing uneven traffic, and ends with a proof by record
    ids that everything arrived exactly once and in order. Stops what it started. DIR must be new, empty or that of an
    earlier demo, whose tree and samples are removed; changed by hand or sampled into for hours, they are not.

    \b
    Example:
      mm2mgr demo --keep
    """
    from mm2mgr.errors import need_all

    need_all()  # before the demo imports one of them
    from mm2mgr.demo.story import run_demo

    return run_demo(directory, keep=keep, measure_seconds=seconds)
