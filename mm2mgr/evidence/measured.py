"""What the store has measured, as sizing judges it: rates by hour and partition, mean week, task capacity of flows.

It asks no cluster.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mm2mgr.partitions import Statistic, TopicPartition
from mm2mgr.render import CLIENT_ID_KEY, is_limited
from mm2mgr.samples.schema import hour_of, utc_text
from mm2mgr.secrets import is_secret
from mm2mgr.sizing.capacity import (
    RECENT_DAYS,
    MeasuredCapacity,
    Saturated,
    TaskMeasurement,
    by_history,
    find_saturation,
)
from mm2mgr.sizing.forecast import HEAVIEST, MeasuredWeeks
from mm2mgr.sizing.load import Hours, TopicGrowth, fill_unknown_hours, level_growth, statistic_of
from mm2mgr.sizing.scenario import Week
from mm2mgr.sizing.tasks import Profile
from mm2mgr.weeks import WEEK_HOURS, LoadWeek, week_of_load

if TYPE_CHECKING:
    from mm2mgr.connectors import Connector
    from mm2mgr.samples.store import TaskRow
    from mm2mgr.throughput.hourly import HourlyRates
    from mm2mgr.topology import Flow

_DAY_SECONDS = 86_400.0
_ROWS = 16_384
_CELLS = 50_000_000  # partitions × hours held at once, 400 MB; a large estate shows fewer weeks, never less than one
_RECENT_MS = RECENT_DAYS * 86_400_000
_OLDEST_MS = 12 * _RECENT_MS
# What reaches the client that reads and the one that writes, and what decides when a task commits.
_DECIDING = (
    *("source.consumer.", "consumer.", "producer.override.", "exactly.once.", "transaction.", "transforms"),
    "source.cluster.security.protocol",
)
_NOT_DECIDING = ("ssl.", "sasl.", "bootstrap.servers", "client.id")


@dataclass(frozen=True)
class MeasuredRates:
    """Bytes per second by hour at today's level, by cluster, topic and partition; absent where not measured.

    `window`: first and last measurement as text. `profiles`: by cluster, record sizes and growth. `hours`: those of the
    rates, counted since 1970. `weeks`: by flow id, the loads as they were measured.
    """

    by_cluster: Mapping[str, Mapping[str, Mapping[TopicPartition, Hours]]]
    window: str
    statistic: Statistic = "p95"
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    hours: tuple[int, ...] = ()
    weeks: Mapping[str, MeasuredWeeks] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return statistic and window, such as `p95 of 2026-11-20T10:00:00Z/2026-11-21T10:00:00Z`."""
        return f"{self.statistic} of {self.window}"

    def profile(self, alias: str) -> Profile:
        """Return what else was measured of a cluster."""
        return self.profiles.get(alias) or Profile()

    def of_topics(self, alias: str, topics: Collection[str]) -> dict[TopicPartition, Hours]:
        """Return the rates of some topics of a cluster."""
        by_topic = self.by_cluster.get(alias, {})
        return {partition: rate for topic in topics for partition, rate in by_topic.get(topic, {}).items()}


def read_rates(
    store: str | Path,
    window_seconds: float | None = None,
    statistic: Statistic = "p95",
    flows: Sequence[Flow] = (),
) -> MeasuredRates:
    """Read the hours of a store's roll-ups, and the weeks of some flows; Mm2mgrError where nothing was rolled up. No
    window: the last four weeks."""
    from mm2mgr.throughput.hourly import hourly_rates

    rates_by_hour = hourly_rates(store, window_seconds, statistic)
    names, place = rates_by_hour.names, rates_by_hour.place
    weeks = {flow.id: _weeks_of(flow, rates_by_hour) for flow in flows}
    fill_unknown_hours(rates_by_hour.table, rates_by_hour.hours)
    topics = names.cluster[place] * max(1, len(names.topics)) + names.topic[place]
    growth: dict[str, dict[str, TopicGrowth]] = {}
    for number, grown in level_growth(rates_by_hour.table, topics, rates_by_hour.hours).items():
        cluster, topic = divmod(number, max(1, len(names.topics)))
        growth.setdefault(names.clusters[cluster], {})[names.topics[topic]] = grown
    rates: dict[str, dict[str, dict[TopicPartition, Hours]]] = {}
    sizes: dict[str, dict[TopicPartition, float]] = {}
    columns = (names.cluster[place], names.topic[place], names.partition[place], rates_by_hour.record_bytes)
    for cluster, topic, partition, size, row in zip(
        *(column.tolist() for column in columns), rates_by_hour.table, strict=True
    ):
        alias, topic_partition = names.clusters[cluster], TopicPartition(names.topics[topic], partition)
        rates.setdefault(alias, {}).setdefault(topic_partition.topic, {})[topic_partition] = row
        sizes.setdefault(alias, {})[topic_partition] = size
    profiles = {alias: Profile(of, growth.get(alias, {})) for alias, of in sizes.items()}
    window = (
        f"{utc_text(rates_by_hour.first_ms / 1000)}/{utc_text(rates_by_hour.last_ms / 1000)}"
        if rates
        else "nothing measured"
    )
    return MeasuredRates(rates, window, statistic, profiles, rates_by_hour.hours, weeks)


def _weeks_of(flow: Flow, rates: HourlyRates) -> MeasuredWeeks:
    """Return the weeks of a flow's load as it was measured, and of the topics of its heaviest partitions."""
    names, place = rates.names, rates.place
    if flow.source.alias not in names.clusters:
        return MeasuredWeeks()
    inside = (names.cluster[place] == names.clusters.index(flow.source.alias)).nonzero()[0]
    topics = names.topic[place].tolist()
    carried = {topic for topic in {topics[row] for row in inside.tolist()} if flow.carries(names.topics[topic])}
    rows = [row for row in inside.tolist() if topics[row] in carried]
    total, highest = _totals(rates.table, rows)
    heaviest = {topics[rows[at]] for at in nlargest(HEAVIEST, range(len(rows)), highest.__getitem__)}
    of_topic: dict[int, list[int]] = {number: [] for number in heaviest}
    for row in rows:
        if topics[row] in of_topic:
            of_topic[topics[row]].append(row)

    def week_of(loads: Sequence[float | None]) -> LoadWeek | None:
        measured = {hour: load for hour, load in zip(rates.hours, loads, strict=True) if load is not None}
        return week_of_load(measured, rates.hours[-1])

    weeks = {names.topics[number]: week_of(_totals(rates.table, of)[0]) for number, of in of_topic.items()}
    return MeasuredWeeks(week_of(total), {topic: week for topic, week in weeks.items() if week})


def _totals(table: Any, rows: Sequence[int]) -> tuple[list[float | None], list[float]]:
    """Return the sum of some rows in each hour, None where none was measured, and the highest value of each row."""
    sums, counts, highest = [0.0] * table.shape[1], [0] * table.shape[1], list[float]()
    for first in range(0, len(rows), _ROWS):
        block = table[rows[first : first + _ROWS]]
        measured = block == block  # noqa: PLR0124  NaN equals nothing
        filled = block.copy()
        filled[~measured] = 0.0
        sums = [before + more for before, more in zip(sums, filled.sum(axis=0, dtype=float).tolist(), strict=True)]
        counts = [before + more for before, more in zip(counts, measured.sum(axis=0).tolist(), strict=True)]
        highest += filled.max(axis=1).tolist()
    return [load if count else None for load, count in zip(sums, counts, strict=True)], highest


@dataclass(frozen=True)
class NewestRates:
    """Rates of the newest 24 hours in a store, by cluster and partition: bytes and records per second (0: unknown),
    and until when they were measured, in seconds since 1970.

    `until_seconds`: of all.
    """

    by_cluster: Mapping[str, Mapping[TopicPartition, tuple[float, float, float]]]
    until_seconds: float

    @property
    def text(self) -> str:
        """Until when anything was measured."""
        return utc_text(self.until_seconds)

    def of_cluster(self, alias: str) -> Mapping[TopicPartition, tuple[float, float, float]]:
        """Return the rates of a cluster."""
        return self.by_cluster.get(alias, {})


def read_newest_rates(store: str | Path, statistic: Statistic = "p95") -> NewestRates:
    """Read a statistic of the newest day that was rolled up, only of hours that were measured; Mm2mgrError for none."""
    from mm2mgr.throughput.hourly import hourly_rates

    newest = hourly_rates(store, _DAY_SECONDS, statistic)
    names, until = newest.names, newest.last_ms / 1000
    rates: dict[str, dict[TopicPartition, tuple[float, float, float]]] = {}
    for place, size, row in zip(newest.place.tolist(), newest.record_bytes.tolist(), newest.table, strict=True):
        measured = row == row  # noqa: PLR0124  NaN, of an hour without a rate, equals nothing
        last = newest.hours[int(measured.nonzero()[0][-1])]
        volume = float(statistic_of(row[measured], statistic))
        partition = TopicPartition(names.topics[names.topic[place]], int(names.partition[place]))
        at = min(until, (last + 1) * 3600.0)
        of_cluster = rates.setdefault(names.clusters[names.cluster[place]], {})
        of_cluster[partition] = volume, volume / size if size > 0 else 0.0, at
    return NewestRates(rates, until)


def read_weeks(store: str | Path, flows: Sequence[Flow]) -> dict[str, Week]:
    """Read the mean load by weekday and hour of each flow from the newest weeks of roll-ups, four at most."""
    from mm2mgr.throughput.hourly import WEEKS_SECONDS, hourly, members, week_pattern
    from mm2mgr.throughput.windows import last_hours, read_window

    throughput = read_window(store, last_hours(store, WEEKS_SECONDS))
    window = throughput.window.last(max(WEEK_HOURS, _CELLS // max(1, len(throughput))))
    by_hour = hourly(store, window, throughput)
    rows = {flow.id: members(throughput, flow.source.alias, flow.carries) for flow in flows}
    newest = replace(throughput, window=window)
    return {flow_id: week_pattern(newest, by_hour[own]).bytes_per_second for flow_id, own in rows.items() if len(own)}


class _Link(NamedTuple):
    """Where tasks were measured: one pair on one Connect cluster, under the same client settings."""

    connect: str
    source: str
    target: str
    settings: str


def settings_mark(config: Mapping[str, str]) -> str:
    """Return a digest of the client settings that decide how much a connector's tasks carry, without secrets.

    Under a catch-up limit it differs, because what tasks carry then does not show what they can carry.
    """
    deciding = sorted(
        (key, value)
        for key, value in config.items()
        if key.startswith(_DECIDING) and not is_secret(key) and not any(part in key for part in _NOT_DECIDING)
    )
    limit = ["catch-up limit"] if is_limited(config) else []
    return hashlib.sha256(repr([*limit, *((str(key), str(value)) for key, value in deciding)]).encode()).hexdigest()[
        :16
    ]


def measured_capacities(
    connectors: Callable[[], Sequence[Connector]],
    store: str | Path,
    flows: Sequence[Flow],
    now_ms: int,
    warn: Callable[[str], None],
) -> dict[str, MeasuredCapacity]:
    """Return the measured capacity of one task by flow id, from the last 30 days, else from up to a year ago.

    Only measurements on the same Connect cluster under the client settings that the tree has today count: of the flow's
    own connector, else of another one of its pair. Flows without any are absent. `warn` gets a sentence per damaged
    file.
    """
    from mm2mgr.samples.store import TaskStore

    tasks = TaskStore(store, warn)
    history: dict[_Link, dict[str, tuple[Saturated, float]]] = {}
    for end_ms in range(now_ms + 1, now_ms - _OLDEST_MS, -_RECENT_MS):  # by the month, to save memory
        history = _history(tasks.read(end_ms - _RECENT_MS, end_ms)) | history
    if not history:
        return {}
    desired = {
        flow_id: connector for connector in connectors() for flow_id in connector.flows if connector.type == "source"
    }
    capacities: dict[str, MeasuredCapacity] = {}
    for flow in flows:
        own = desired[flow.id]
        pair = (flow.connect.name, flow.source.alias, flow.target.alias)
        without_limit = {key: value for key, value in own.config.items() if key != CLIENT_ID_KEY}
        held = history.get(_Link(*pair, settings_mark(without_limit)), {})
        best = own.name if own.name in held else max(held, key=lambda name: held[name][1], default=None)
        if best is not None:
            whose = "" if best == own.name else best
            saturated_task, lagged_seconds = held[best]
            day, _, _ = hour_of(saturated_task.ended_ms).partition("T")
            capacity = by_history(saturated_task, flow.settings.tasks.threshold, now_ms, day, whose)
            capacities[flow.id] = capacity, lagged_seconds
    return capacities


def _history(rows: Iterable[TaskRow]) -> dict[_Link, dict[str, tuple[Saturated, float]]]:
    """Return by link what each connector's tasks carried while they lagged, and for how long; absent if briefly."""
    by_connector: defaultdict[tuple[_Link, str], list[TaskRow]] = defaultdict(list)
    for row in rows:
        by_connector[_Link(row.connect, row.source, row.target, row.settings), row.connector].append(row)
    held_of_link: defaultdict[_Link, dict[str, tuple[Saturated, float]]] = defaultdict(dict)
    for (link, connector), mine in by_connector.items():
        if held := find_saturation(task_measurements(mine)):
            held_of_link[link][connector] = (held, _lagged_seconds(mine))
    return held_of_link


def _lagged_seconds(rows: Iterable[TaskRow]) -> float:
    by_task: Counter[int] = Counter()
    for row in rows:
        by_task[row.task] += row.span_ms
    return max(by_task.values(), default=0) / 1000


def task_measurements(rows: Iterable[TaskRow]) -> Iterator[TaskMeasurement]:
    """Yield a connector's rows, ordered by task and time, as measurements: each unbroken stretch is a task.

    A row whose span does not begin at the row before it follows a gap (a lost file) and only opens a stretch.
    """
    last: tuple[int, int] | None = None
    stretch = 0
    for row in rows:
        if row.span_ms == 0 or last != (row.task, row.time_ms - row.span_ms):
            stretch += 1
        last = (row.task, row.time_ms)
        name = f"{row.connector}-{row.task}, stretch {stretch}"
        yield TaskMeasurement(name, row.time_ms, row.bytes_per_second, row.lag_records, row.uncertain_ms / 1000)
