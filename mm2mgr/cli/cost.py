"""The command about money: `cost`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr.cli.options import Parsed, command, invalid_arguments, option, output_in, store_option
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.cost import By

_MONTH = re.compile(r"(?!0000)[0-9]{4}-(0[1-9]|1[0-2])")


def _month(text: str) -> str:
    if not _MONTH.fullmatch(text):
        raise ValueError("is not a month such as 2026-10")
    return text


@command("Load", 7)
@click.argument("flows", nargs=-1)
@store_option("Folder or URI of the tables, rolled up.")
@option(
    "--month", type=Parsed("month", _month), metavar="YYYY-MM", show_default=False, help="Of UTC. Default: this month."
)
@option(
    "--by",
    type=click.Choice(["flow", "owner", "link", "cluster", "month"]),
    default="flow",
    help="What a line is; `month` without --month prints all that were measured.",
)
@output_in("text", "json", "markdown")
@click.pass_obj
def cost(workspace: Workspace, flows: tuple[str, ...], store: Path, month: str | None, by: By, output: str) -> int:
    """Print what flows move over links, and what it costs.

    From the roll-ups of `throughput` and the sizes of stored records that `sample` measures, with `price_per_gb` of
    links and `price_per_gb_in` of clusters. What was not measured of a month counts as the same hours of the week did;
    flows and topics of which nothing was measured are named, and never counted as nothing. Asks no cluster, starts no
    Java.

    \b
    Example:
      mm2mgr cost --month 2026-10 --by link
      mm2mgr cost orders -o markdown
    """
    from mm2mgr.operations.cost import CostOrder
    from mm2mgr.operations.cost import cost as cost_of_flows
    from mm2mgr.output.console import complain, say_as, say_lines, talk
    from mm2mgr.output.cost_text import cost_markdown, say_cost

    with invalid_arguments():
        report = cost_of_flows(workspace, CostOrder(flows, store, month, by), lambda text: talk(text, "yellow"))
    if output == "markdown":
        say_lines(cost_markdown(report))
    else:
        say_as(output, report, say_cost)
    for sentence in report.sentences:
        complain(sentence, "run `mm2mgr sample` and `mm2mgr throughput` where this flow's source can be read")
    return 1 if report.unmeasured else 0
