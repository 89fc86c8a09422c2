"""Names for partition ids: the dictionary of a store, with the ids of one partition's several logs brought together.

In goes a store's directory, out come arrays by id; a topic created anew has new ids and stays one topic to its readers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import listed
from mm2mgr.samples.schema import DICTIONARY, DICTIONARY_COLUMNS


@dataclass(frozen=True)
class Names:
    """Clusters and topics by number; `of_id` gives each partition id its place in the other arrays, -1 without a name."""

    clusters: list[str]
    topics: list[str]
    cluster: Any
    topic: Any
    partition: Any
    of_id: Any

    def __len__(self) -> int:
        return len(self.partition)

    def places(self, ids: Any) -> Any:
        """Return where these partition ids stand in the arrays by partition, -1 for one that the dictionary lacks."""
        return np.append(self.of_id, -1)[np.minimum(ids, len(self.of_id))]


def read_names(store: Path) -> Names:
    """Read the dictionary; its partitions are ordered by cluster, topic and number."""
    table = _table(store)
    clusters, cluster = _ordered_codes(table["cluster"])
    topics, topic = _ordered_codes(table["topic"])
    partition = table["partition"].to_numpy().astype(np.int64)
    ids = table["partition_id"].to_numpy()
    span = int(partition.max(initial=0)) + 1
    key = (cluster * max(len(topics), 1) + topic) * span + partition
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    of_id = np.full(int(ids.max(initial=-1)) + 1, -1, np.int64)
    of_id[ids] = place
    return Names(clusters, topics, cluster[first], topic[first], partition[first], of_id)


def _table(store: Path) -> Any:
    columns = [name for name in DICTIONARY_COLUMNS if name != "topic_id"]
    tables = []
    for path in listed(store / DICTIONARY, "*.parquet"):
        if path.name[0] != ".":
            try:
                with pq.ParquetFile(path, read_dictionary=["cluster", "topic"]) as file:
                    tables.append(file.read(columns=columns).select(columns))
            except (OSError, pa.ArrowException, ValueError, KeyError) as error:
                raise Mm2mgrError(f"{path} is not a readable dictionary", hint="restore it from a backup") from error
    if not tables:
        kinds = [pa.field(name, getattr(pa, DICTIONARY_COLUMNS[name])()) for name in columns]
        return pa.schema(kinds).empty_table().combine_chunks()
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _ordered_codes(column: Any) -> tuple[list[str], Any]:
    """Number the strings of a column in their order."""
    whole = column.combine_chunks()
    encoded = whole if isinstance(whole, pa.DictionaryArray) else whole.dictionary_encode()  # plain where none was read
    found = [str(one) for one in encoded.dictionary.to_pylist()]
    order = sorted(range(len(found)), key=found.__getitem__)
    rank = np.zeros(len(found) or 1, np.int64)
    rank[order] = np.arange(len(found))
    return [found[place] for place in order], rank[encoded.indices.to_numpy(zero_copy_only=False)]
