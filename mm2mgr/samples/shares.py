"""Shares of a table: ranges of topics that are read one at a time, so that memory holds some and several processes divide the rest.

Files that are sorted by cluster and topic are read only where a share lies in them; others are read whole for each share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from mm2mgr.samples.tables import STRINGS, DataFile, StoredTable, UnreadableFile, one_table

TopicName = tuple[str, str]
"""Cluster and topic."""


@dataclass(frozen=True)
class Share:
    """The topics from `low` on, up to but not including `high` (None: to the last)."""

    low: TopicName = ("", "")
    high: TopicName | None = None

    def may_hold(self, group: Any) -> bool:
        """Tell from the metadata of a row group whether it can have rows of the share."""
        columns = [group.column(place) for place in range(group.num_columns)]
        limits = {one.path_in_schema: one.statistics for one in columns if one.path_in_schema in ("cluster", "topic")}
        if any(one is None or not one.has_min_max for one in limits.values()) or len(limits) < 2:
            return True
        cluster, topic = limits["cluster"], limits["topic"]
        return (cluster.max, topic.max) >= self.low and (self.high is None or (cluster.min, topic.min) < self.high)

    def rows(self, table: Any) -> Any:
        """Return the rows of the share; `cluster` and `topic` are dictionaries, the table is in one chunk."""
        if self == Share() or not len(table):
            return table
        inside = _at_least(table, self.low)
        if self.high is not None:
            inside &= ~_at_least(table, self.high)
        places = np.flatnonzero(inside)
        if len(places) and places[-1] - places[0] == len(places) - 1:  # sorted rows: nothing is copied
            return table.slice(places[0], len(places))
        return table.filter(pa.array(inside))


def read_share(
    table: StoredTable, files: Iterable[DataFile], columns: Sequence[str], share: Share
) -> tuple[Any, dict[str, str]]:
    """Return the rows of a share in one chunk, in the order of the files, and the reason for each file left out."""
    found, unreadable = [], {}
    for file in files:
        try:
            rows = one_table([table.read_file(file, columns, share.may_hold)], None)
        except UnreadableFile as error:
            unreadable[f"{table.uri}/{file.path}"] = error.message
            continue
        found.append(share.rows(rows))
    return one_table(found, _empty(table, columns)), unreadable


def shares_of(table: StoredTable, files: Sequence[DataFile], rows_per_share: int) -> list[Share]:
    """Cut the topics in these files into shares of about as many rows; files that cannot be read count as nothing."""
    weights: dict[TopicName, float] = {}
    kinds: dict[tuple[str, str] | None, list[DataFile]] = {}
    if sum(file.rows for file in files) <= rows_per_share:
        return [Share()]
    for file in files:
        kinds.setdefault(file.bounds.get("cluster"), []).append(file)
    for alike in kinds.values():
        # The polls of a cluster are much alike: one stands for all of them. Rewritten files have topics of their own.
        for file in _standing_for(alike):
            try:
                names = one_table([table.read_file(file, ("cluster", "topic"))], None)
            except UnreadableFile:
                continue
            scale = sum(one.rows for one in alike) / max(1, sum(one.rows for one in _standing_for(alike)))
            for name, count in _counts(names):
                weights[name] = weights.get(name, 0.0) + count * scale
    shares, low, held = [], ("", ""), 0.0
    for name in sorted(weights):
        if held and held + weights[name] > rows_per_share:
            shares.append(Share(low, name))
            low, held = name, 0.0
        held += weights[name]
    return [*shares, Share(low)]


def codes_of(column: Any) -> tuple[list[str | None], Any]:
    """Return the strings of a dictionary column in one chunk, and their number for each row; null is a string, too."""
    whole = column.chunk(0) if column.num_chunks else column.combine_chunks()
    names: list[str | None] = list(whole.dictionary.to_pylist())
    indices = whole.indices
    if indices.null_count:
        indices = indices.fill_null(len(names))
        names.append(None)
    return names, indices.to_numpy(zero_copy_only=False)


def _standing_for(alike: Sequence[DataFile]) -> Sequence[DataFile]:
    largest = max(alike, key=lambda one: one.rows)
    return [one for one in alike if 2 * one.rows > largest.rows] if len(alike) <= 8 else [largest]


def _counts(names: Any) -> list[tuple[TopicName, int]]:
    clusters, cluster = codes_of(names["cluster"])
    topics, topic = codes_of(names["topic"])
    keys, counts = np.unique(cluster.astype(np.int64) * max(1, len(topics)) + topic, return_counts=True)
    pairs = [(str(clusters[key // len(topics)]), str(topics[key % len(topics)])) for key in keys.tolist()]
    return list(zip(pairs, counts.tolist(), strict=True))


def _at_least(table: Any, bound: TopicName) -> Any:
    clusters, cluster = codes_of(table["cluster"])
    topics, topic = codes_of(table["topic"])
    above = np.array([str(name) > bound[0] for name in clusters], np.bool_)
    same = np.array([name == bound[0] for name in clusters], np.bool_)
    further = np.array([str(name) >= bound[1] for name in topics], np.bool_)
    return above[cluster] | (same[cluster] & further[topic])


def _empty(table: StoredTable, columns: Sequence[str]) -> Any:
    text = pa.dictionary(pa.int32(), pa.string())
    kinds = [pa.field(name, text if name in STRINGS else table.schema.field(name).type) for name in columns]
    return pa.schema(kinds).empty_table()
