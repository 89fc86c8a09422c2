"""What flows cost, on a terminal and in Markdown."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from mm2mgr.cost import GB
from mm2mgr.output.console import say, say_table
from mm2mgr.output.markdown import escape
from mm2mgr.output.tables import Table
from mm2mgr.text import visible

if TYPE_CHECKING:
    from mm2mgr.cost import CostLine
    from mm2mgr.operations.cost import CostReport

_MOST_BYTES = 60_000


def say_cost(report: CostReport) -> None:
    """Print a line per flow, owner, link, cluster or month, all together, and what the numbers are."""
    if report.lines:
        say_table(cost_table(report))
        say()
    for note in report.notes:
        say(visible(note), "dim")


def cost_markdown(report: CostReport) -> str:
    """Return the same as Markdown."""
    table = cost_table(report)
    cells = [[escape(cell) for cell in row] for row in table.rows]
    lines = [Table([escape(column) for column in table.columns], cells).markdown(_MOST_BYTES)] if cells else []
    return "\n".join([*lines, "", *(f"- {escape(note)}" for note in (*report.sentences, *report.notes)), ""])


def cost_table(report: CostReport) -> Table:
    """Return the table: GB and money of what was measured so far, and of whole months."""
    with_links, with_clusters = report.by != "cluster", report.by != "link"
    heads = (
        (with_links, ("link GB", "of month")),
        (with_clusters, ("into GB", "of month")),
        (True, ("cost", "of month", "measured")),
    )
    numbers = [name for is_shown, names in heads if is_shown for name in names]
    columns = [report.by, *_name_columns(numbers), "bytes are"]
    lines = [*report.lines, *([report.total] if len(report.lines) > 1 and report.by not in {"link", "cluster"} else [])]
    rows = []
    for line in lines:
        cells = [visible(line.name)]
        cells += [gb_text(line.link_bytes), gb_text(line.link_bytes_month)] if with_links else []
        cells += [gb_text(line.into_bytes), gb_text(line.into_bytes_month)] if with_clusters else []
        cells += [money_cell(line, "so_far"), money_cell(line, "month"), f"{line.covered * 100:.3g} %"]
        rows.append([*cells, line.basis_text])
    return Table(columns, rows, right=columns[1:-1], drop=(columns[-1], "measured"))


def _name_columns(names: list[str]) -> list[str]:
    """Return names of columns, of which no two are the same: `of month` follows what it is of."""
    return [f"{names[at - 1]} {name}" if name == "of month" else name for at, name in enumerate(names)]


def gb_text(size_bytes: int) -> str:
    """Return bytes as GB of 10^9, with three digits behind the point, and more where it is less than a MB."""
    gb = Decimal(size_bytes) / GB
    return f"{gb:.3f}" if gb >= Decimal("0.01") or not size_bytes else f"{gb:.6f}"


def money_cell(line: CostLine, which: str) -> str:
    """Return the money of a line, of each currency; `-` without a price."""
    parts = [f"{getattr(amount, f'{which}_text')} {amount.currency}" for amount in line.amounts]
    return " + ".join(parts) or "-"
