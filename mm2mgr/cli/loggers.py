"""The command `loggers`: levels of the workers' loggers."""

from __future__ import annotations

import click

from mm2mgr import operations
from mm2mgr.cli.options import Parsed, command, option, output_option
from mm2mgr.operations.workspace import Workspace


def _level(text: str) -> tuple[str, str]:
    name, equals, level = text.rpartition("=")
    if not equals or not name.strip() or not level.strip():
        raise ValueError("is not NAME=LEVEL, such as org.apache.kafka.connect.mirror=DEBUG")
    return name.strip(), level.strip()


@command("Every day", 9)
@click.argument("connect")
@option(
    "--set",
    "levels",
    type=Parsed("level", _level),
    multiple=True,
    metavar="NAME=LEVEL",
    help="Set the level of a logger and all below it (repeatable): OFF, FATAL, ERROR, WARN, INFO, DEBUG or TRACE.",
)
@option("--worker", "workers", multiple=True, metavar="URL", help="Only this worker, by URL or host:port (repeatable).")
@option("--reason", default="", show_default=False, metavar="TEXT", help="Why; kept in the history with --set.")
@output_option
@click.pass_obj
def loggers(
    workspace: Workspace,
    connect: str,
    levels: tuple[tuple[str, str], ...],
    workers: tuple[str, ...],
    reason: str,
    output: str,
) -> int:
    """Show or set the log levels of each worker of a Connect cluster.

    Levels are of one worker and end when it restarts. Shown are loggers whose level is not that of the one above them,
    and workers that differ; -o json has all. What is set is in the history. Kafka 2.4 or newer; connectors are never
    touched.
    org.apache.kafka.connect.mirror=DEBUG shows what MirrorMaker does; a line says how to set it back.

    \b
    Example:
      mm2mgr loggers agg-east
      mm2mgr loggers agg-east --set org.apache.kafka.connect.mirror=DEBUG
    """
    from mm2mgr.output.console import say_as, working
    from mm2mgr.output.loggers_text import say_cut_short, say_loggers

    if len(names := [name for name, _ in levels]) > len(set(names)):
        twice = next(name for name in names if names.count(name) > 1)
        raise click.UsageError(f"--set: {twice} is set twice")
    with working("asking each worker"):
        report = operations.loggers(
            workspace, connect, dict(levels), only=workers, reason=reason, interrupted=say_cut_short
        )
    say_as(output, report, say_loggers)
    return 1 if report.has_failed else 0
