"""Operations on a store as a whole: its tables, and the conversion of a store of an earlier version into tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mm2mgr.samples.convert import Converted
    from mm2mgr.samples.schema import Store


@dataclass(frozen=True)
class TableSize:
    """One table of a store: where it is, and how many rows and files it has now."""

    name: str
    uri: str
    rows: int
    files: int


def table_sizes(store: Store) -> list[TableSize]:
    """Return the tables of a store that exist, with their sizes."""
    from mm2mgr.samples.schema import TABLES
    from mm2mgr.samples.tables import StoredTable

    found = [(table, table.files()) for name in TABLES if (table := StoredTable(store, name)).exists()]
    return [TableSize(table.name, table.uri, sum(file.rows for file in files), len(files)) for table, files in found]


def convert_samples(
    old: Path,
    new: Store,
    warn: Callable[[str], None] = lambda _: None,
    progress: Callable[[str], None] = lambda _: None,
) -> Converted:
    """Copy an old store into new tables; the old one stays as it is. `warn` receives a sentence for each damaged file,
    `progress` each hour as it begins. Mm2mgrError where NEW has tables already."""
    from mm2mgr.samples.convert import convert

    return convert(old, new, warn, progress)
