"""The commands of links between clusters: read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mm2mgr import operations
from mm2mgr.cli.options import Seconds, listed, option, output_option
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.operations.link import BrokersReport

DIFFERS = 2


@listed("Load", 7)
@click.group()
def link() -> None:
    """Learn what long links and the brokers at their ends carry.

    \b
    Example:
      mm2mgr link read
    """


@link.command()
@click.argument("clusters", nargs=-1)
@option("--check", is_flag=True, help="Print the difference only; exit code 2 when brokers differ from the file.")
@option("--timeout", type=Seconds(0, min_open=True), default=20.0, help="Time limit per cluster, in seconds.")
@output_option
@click.pass_obj
def read(workspace: Workspace, clusters: tuple[str, ...], check: bool, timeout: float, output: str) -> int:
    """Read what the brokers allow, for review.

    Writes overrides/brokers.yaml: socket buffers, which cap a connection over a long link, the largest request and message,
    number and version of the brokers of CLUSTERS, all by default; and the smallest max.message.bytes of the topics that
    each flow writes to. `plan`, `lint` and the settings of flows use the file, so they need no broker for this. A cluster
    that does not answer keeps its entry, and the exit code is 1. Needs DescribeConfigs on clusters and topics.

    \b
    Example:
      mm2mgr link read
      mm2mgr link read --check
    """
    from mm2mgr.output.console import say_as, talk
    from mm2mgr.output.link_text import say_brokers

    report = operations.link_read(workspace, clusters, write=not check, timeout_seconds=timeout, notify=talk)
    say_as(output, report.to_dict(), say_brokers)
    return _ended(report, check=check)


def _ended(report: BrokersReport, *, check: bool) -> int:
    """Print what became of the file, and return the exit code."""
    from mm2mgr.output.console import complain, talk

    for message in report.failures.values():
        complain(message, "its entry stays as it is")
    if report.entries and not check and not report.refused:
        talk(f"{report.path} {'written: review it, then plan' if report.is_changed else 'is up to date'}")
    if report.refused:
        message = f"{report.path}: not written for {', '.join(report.refused)}: the entries changed meanwhile"
        complain(message, "look at what others wrote, then run link read again")
    if report.failures or report.refused:
        return 1
    return DIFFERS if check and report.diff else 0
