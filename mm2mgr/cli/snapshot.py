"""The command `snapshot`."""

from __future__ import annotations

from pathlib import Path

import click

from mm2mgr import operations
from mm2mgr.cli.options import OutputFile, command, option, output_option
from mm2mgr.operations.workspace import Workspace


@command("Every day", 15)
@option("--out", type=OutputFile(), required=True, help="File to write.")
@option(
    "--anonymous",
    is_flag=True,
    help="With made-up names, for strangers; a tree with the same names is written beside it.",
)
@output_option
@click.pass_obj
def snapshot(workspace: Workspace, out: Path, anonymous: bool, output: str) -> int:
    """Write what the clusters answer now to a file, secrets masked.

    With --snapshot FILE, `plan`, `status`, `describe`, `lag`, `who`, `topics`, `drift`, `lint`, `check`, `size`,
    `fleet` and `simulate` answer from it as they would have answered then, anywhere, and contact nothing: for a bug
    report, for a plan that is reviewed offline, or to see what a new version says of last night. The tree is not in
    the file.

    \b
    Example:
      mm2mgr snapshot --out night.json
      mm2mgr plan --snapshot night.json
    """
    from mm2mgr.output.console import say_as, working
    from mm2mgr.output.snapshot_text import say_taken

    with working("asking Connect and Kafka"):
        taken = operations.snapshot(workspace, out, anonymous=anonymous)
    say_as(output, taken, say_taken)
    return 1 if taken.failed else 0
