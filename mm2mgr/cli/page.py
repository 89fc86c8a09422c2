"""The `--page` option of `size` and `fleet`: one HTML file with tasks, partitions and weeks of each flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mm2mgr.errors import Mm2mgrError

if TYPE_CHECKING:
    from mm2mgr.operations import FlowView

page_option = click.option(
    "--page", type=click.Path(path_type=Path, dir_okay=False), help="Write a page (one HTML file) too."
)


def write_page(
    path: Path, views: Sequence[FlowView], report: Mapping[str, Any] | None = None, measured: str = ""
) -> None:
    """Write the page; Mm2mgrError where it cannot be written, or another file is there. `measured`: which rates it plans with."""
    from mm2mgr.files import FileKind, write_whole
    from mm2mgr.output.console import talk
    from mm2mgr.output.page import TITLE, page

    written = f"Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC" + (f"; rates: {measured}." if measured else ".")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Mm2mgrError(f"{path}: cannot be written: {error.strerror}", hint="name another file") from error
    write_whole(path, page(views, report, written), FileKind("a page", lambda head: f"<title>{TITLE}</title>" in head))
    talk(f"page in {path}")
