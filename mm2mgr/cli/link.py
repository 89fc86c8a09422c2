"""The commands of links between clusters: read, probe, explain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr import operations
from mm2mgr.cli.options import (
    LEAST_SECONDS,
    CommandGroup,
    Count,
    Duration,
    Size,
    in_help,
    option,
    output_option,
    page_option,
    write_html,
)
from mm2mgr.errors import ExitCode
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.operations.link import BrokersReport


@in_help("Load", 7)
@click.group(cls=CommandGroup)
def link() -> None:
    """Measure and forecast what long links carry.

    \b
    Example:
      mm2mgr link read
      mm2mgr link probe dc1 agg-east
      mm2mgr link explain orders
    """


@link.command()
@click.argument("clusters", nargs=-1)
@option("--check", is_flag=True, help="Print the difference only, and end with its exit code.")
@option("--timeout", type=Duration(LEAST_SECONDS), default="20s", help="Time limit per cluster.")
@output_option
@click.pass_obj
def read(workspace: Workspace, clusters: tuple[str, ...], check: bool, timeout: float, output: str) -> int:
    """Read what the brokers allow, for review.

    Writes overrides/brokers.yaml: socket buffers, which cap a connection over a long link, the largest request and
    message, number and version of the brokers of CLUSTERS, all by default; and the smallest max.message.bytes of the
    topics that each flow writes to. `plan`, `lint` and the settings of flows use the file, so they need no broker for
    this. A cluster that does not answer keeps its entry. Needs DescribeConfigs on clusters and topics.

    \b
    Example:
      mm2mgr link read
      mm2mgr link read --check
    """
    from mm2mgr.output.console import say_as, talk
    from mm2mgr.output.load_text import say_brokers

    report = operations.link_read(workspace, clusters, write=not check, timeout_seconds=timeout, notify=talk)
    say_as(output, report, say_brokers)
    return _exit_code(report, check=check)


def _exit_code(report: BrokersReport, *, check: bool) -> int:
    from mm2mgr.output.console import complain, talk

    for message in report.failures.values():
        complain(message, "its entry stays as it is")
    if report.entries and not check and not report.refused:
        talk(f"{report.path} {'written: review it, then plan' if report.is_changed else 'is up to date'}")
    if report.refused:
        message = f"{report.path}: not written for {', '.join(report.refused)}: the entries changed meanwhile"
        complain(message, "look at what others wrote, then run link read again")
    if report.failures or report.refused:
        return ExitCode.NO
    return ExitCode.DIFFERS if check and report.diff else ExitCode.YES


@link.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@option(
    "--bandwidth",
    is_flag=True,
    help="Also measure the bandwidth to the farther one, with --topic or --temporary-topic.",
)
@option(
    "--topic",
    default="",
    show_default=False,
    metavar="NAME",
    help="With --bandwidth: read this topic, which must have records.",
)
@option("--temporary-topic", is_flag=True, help="With --bandwidth: create a topic, write to it, and delete it.")
@option("--bytes", "limit_bytes", type=Size(1e6), default="200 MB", help="With --bandwidth: end after so much.")
@option("--seconds", type=Duration(1), default="15s", help="With --bandwidth: end after this time.")
@option(
    "--connections", type=Count(1, 64), default=16, help="With --bandwidth: one connection rarely fills a long link."
)
@option("--write", is_flag=True, help="Put the entry into the tree; all other lines stay as they are.")
@option("--timeout", type=Duration(LEAST_SECONDS), default="10s", help="Time limit for the answer of a broker.")
@output_option
@click.pass_obj
def probe(
    workspace: Workspace,
    first: str,
    second: str,
    bandwidth: bool,
    topic: str,
    temporary_topic: bool,
    limit_bytes: float,
    seconds: float,
    connections: int,
    write: bool,
    timeout: float,
    output: str,
) -> int:
    """Measure the link between clusters A and B.

    Times TCP connects and requests from this machine to every broker of both, which needs no rights, and prints the
    entry of `links:` that follows. Run it beside one of the two: if it is beside neither, the round trip between them
    is not known. With --bandwidth it loads the link: a topic is read from the farther cluster, or a temporary one
    written there.

    \b
    Example:
      mm2mgr link probe dc1 agg-east
      mm2mgr link probe dc1 agg-east --bandwidth --topic app.orders --seconds 20 --write
    """
    from mm2mgr.output.console import say_as, talk
    from mm2mgr.output.load_text import say_probe

    if bandwidth != bool(topic or temporary_topic) or (topic and temporary_topic):
        raise click.UsageError("--bandwidth needs one of --topic NAME and --temporary-topic, and they need --bandwidth")
    probed = operations.link_probe(
        workspace,
        first,
        second,
        topic=topic,
        temporary_topic=temporary_topic,
        limits=operations.TransferLimits(limit_bytes, seconds, connections),
        write=write,
        timeout_seconds=timeout,
        notify=talk,
    )
    say_as(output, probed, say_probe)
    if probed.entry is None:
        return ExitCode.LOOK
    if write:
        talk("written: review it, then plan" if probed.written else "the tree has this entry already")
    return 0


@link.command()
@click.argument("flow", metavar="FLOW|A->B")
@option("--partitions", type=Count(1), help="Partitions of the flow; default: one for each task.")
@option("--record-size", type=Size(1), default="1 kB", help="Mean size of a record, before compression.")
@page_option
@output_option
@click.pass_obj
def explain(
    workspace: Workspace, flow: str, partitions: int | None, record_size: float, page: Path | None, output: str
) -> int:
    """Forecast what a flow carries over its link, and why not more.

    Beside the settings of the tree: Kafka's defaults and the published recipe of 50 MiB for fetches and batches, with
    the workers beside the target and beside the source; then the rate over the round trip, over tasks, and over the
    size of a fetch or batch, with the heap of a task. Asks no cluster: brokers allow what `link read` wrote, else
    Kafka's defaults. The model is fitted to measured runs; `benchmarks/long_link.py` measures.

    \b
    Example:
      mm2mgr link explain orders --partitions 12
      mm2mgr link explain 'dc1->agg' --page link.html
    """
    from mm2mgr.output.console import say_as
    from mm2mgr.output.load_text import say_forecasts

    flows = operations.link_explain(workspace, flow, partitions=partitions, record_bytes=record_size)
    try:
        if page:
            from mm2mgr.output.page import LINK_TITLE, link_page

            write_html(page, LINK_TITLE, lambda origin: link_page(flows, origin))
    finally:
        say_as(output, {"flows": flows}, lambda _: say_forecasts(flows))
    return 0
