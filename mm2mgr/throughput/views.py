"""Questions about the table `throughput` as named views: one text of SQL each, the same for Spark SQL and DuckDB.

What `mm2mgr throughput --show --by …` prints is the same by definition: a test holds its numbers equal to these views
in both engines. Flows and capacities are small tables that whoever asks brings along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import SAMPLES, hour_start_ms
from mm2mgr.weeks import EPOCH_HOUR_OF_WEEK, WEEK_HOURS

FLOWS, CAPACITIES = "flows", "capacities"


class Relation(Protocol):
    """What an engine answers to SQL: a frame of Spark, a relation of DuckDB."""

    @property
    def columns(self) -> Sequence[str]: ...


@dataclass(frozen=True)
class View:
    """One question: the columns that it needs of each table, the columns that it gives, and its SQL.

    `{first}` and `{last}` in the SQL are the hours of the window.
    """

    name: str
    meaning: str
    needs: Mapping[str, Sequence[str]]
    gives: Sequence[str]
    sql: str


FIRST_HOUR, LAST_HOUR = "0001-01-01T00", "9999-12-31T23"
_PLACE = ("cluster", "topic", "partition")
_COUNTED_ROW = (*_PLACE, "samples", "covered_ms", "records", "bytes", "record_bytes")
_ROW = ("period", "made_from", *_COUNTED_ROW, "first_ms")
_READ = ("bytes_out_per_second", "replication_bytes_in_per_second", "replication_bytes_out_per_second")
_BUSIEST = ("bytes_per_second_mean", "bytes_per_second_busiest_hour", "busiest_hour")


# Spark runs the text of a view anew wherever another view names it: two reads of the table, not one per question.
_COUNTED = """WITH periods AS (
  SELECT period, substr(period, 1, 10) AS day, length(period) AS digits, max(concat(' ', made_from, ' ')) AS made_from
  FROM throughput GROUP BY period
), days AS (
  SELECT period, day, digits, digits = 13 AND period >= '{first}' AND period <= '{last}' AS inside,
    max(CASE WHEN digits = 10 THEN made_from END) OVER (PARTITION BY day) AS of_day,
    sum(CASE WHEN digits = 13 THEN 1 ELSE 0 END) OVER (PARTITION BY day) AS hours
  FROM periods
), named AS (
  SELECT period, day, digits, inside, hours,
    coalesce(of_day LIKE concat('% ', substr(period, 12), ' %'), false) AS merged,
    translate(of_day, '0123456789', '##########') AS words
  FROM days
), judged AS (
  SELECT period, digits, inside, hours, merged,
    coalesce(words LIKE '% ## %' AND length(words) - length(replace(words, ' ##', ''))
      = 3 * sum(CASE WHEN inside AND merged THEN 1 ELSE 0 END) OVER (PARTITION BY day), false) AS whole
  FROM named
), chosen AS (
  SELECT period FROM judged WHERE (inside AND NOT (whole AND merged)) OR (digits = 10
    AND (whole OR (hours = 0 AND concat(period, 'T00') >= '{first}' AND concat(period, 'T00') <= '{last}')))
)
SELECT cluster, topic, partition, samples, covered_ms, records, bytes, record_bytes
FROM throughput WHERE period IN (SELECT period FROM chosen)"""
_SIZES = """sum(record_bytes * samples) AS total,
    CAST(sum(CASE WHEN record_bytes IS NOT NULL THEN samples END) AS DOUBLE) AS weight"""

VIEWS = (
    View(
        "counted_periods",
        "rows of `throughput` that describe the window, each hour once: a day stands for the hours that it was made"
        " from where all of them are in the window, and for itself where its hours are gone",
        {"throughput": _ROW},
        _COUNTED_ROW,
        _COUNTED,
    ),
    View(
        "all_periods",
        "the same rows for everything that the table has",
        {"throughput": _ROW},
        _COUNTED_ROW,
        _COUNTED.replace("{first}", FIRST_HOUR).replace("{last}", LAST_HOUR),
    ),
    View(
        "record_sizes",
        "mean record size per partition: its own in the window, else its own at any time, else its topic's, else its"
        " cluster's",
        {"counted_periods": _COUNTED_ROW, "all_periods": _COUNTED_ROW},
        (*_PLACE, "record_bytes"),
        f"""WITH here AS (
  SELECT cluster, topic, partition, {_SIZES}
  FROM counted_periods GROUP BY cluster, topic, partition
), ever AS (
  SELECT cluster, topic, partition, {_SIZES}
  FROM all_periods GROUP BY cluster, topic, partition
), wider AS (
  SELECT cluster, topic, partition, total / weight AS own,
    sum(total) OVER (PARTITION BY cluster, topic) / sum(weight) OVER (PARTITION BY cluster, topic) AS of_topic,
    sum(total) OVER (PARTITION BY cluster) / sum(weight) OVER (PARTITION BY cluster) AS of_cluster
  FROM ever
)
SELECT here.cluster, here.topic, here.partition,
  coalesce(here.total / here.weight, wider.own, wider.of_topic, wider.of_cluster) AS record_bytes
FROM here LEFT JOIN wider
  ON wider.cluster = here.cluster AND wider.topic = here.topic AND wider.partition = here.partition""",  # noqa: S608
    ),
    View(
        "partition_hours",
        "one row per partition and hour with a known rate; `hour_number` counts hours since 1970, `hour_of_week` from"
        " Monday 0:00 UTC",
        {"throughput": _ROW, "record_sizes": (*_PLACE, "record_bytes")},
        ("hour", *_PLACE, "bytes_per_second", "hour_number", "hour_of_week"),
        f"""WITH volumes AS (
  SELECT hours.period AS hour, hours.cluster, hours.topic, hours.partition, hours.covered_ms, hours.first_ms,
    CASE WHEN hours.bytes IS NULL THEN hours.records * sizes.record_bytes ELSE hours.bytes END AS volume
  FROM throughput hours
  LEFT JOIN record_sizes sizes ON sizes.cluster = hours.cluster AND sizes.topic = hours.topic
    AND sizes.partition = hours.partition
  WHERE length(hours.period) = 13 AND hours.period >= '{{first}}' AND hours.period <= '{{last}}'
    AND hours.covered_ms > 0
), rates AS (
  SELECT hour, cluster, topic, partition, sum(volume) / (sum(covered_ms) / 1000.0) AS bytes_per_second,
    CAST(floor(min(first_ms) / 3600000.0) AS BIGINT) AS hour_number
  FROM volumes WHERE volume IS NOT NULL GROUP BY hour, cluster, topic, partition
)
SELECT hour, cluster, topic, partition, bytes_per_second, hour_number,
  (hour_number + {EPOCH_HOUR_OF_WEEK}) % {WEEK_HOURS} AS hour_of_week
FROM rates""",  # noqa: S608
    ),
    View(
        "partition_rates",
        "one row per partition of the window: its mean rate, null where nothing is known",
        {"counted_periods": _COUNTED_ROW, "record_sizes": (*_PLACE, "record_bytes")},
        (*_PLACE, "bytes_per_second_mean"),
        """WITH volumes AS (
  SELECT rows.cluster, rows.topic, rows.partition, rows.covered_ms,
    CASE WHEN rows.bytes IS NULL THEN rows.records * sizes.record_bytes ELSE rows.bytes END AS volume
  FROM counted_periods rows
  LEFT JOIN record_sizes sizes ON sizes.cluster = rows.cluster AND sizes.topic = rows.topic
    AND sizes.partition = rows.partition
)
SELECT cluster, topic, partition,
  CASE WHEN sum(CASE WHEN volume IS NULL THEN 0 ELSE covered_ms END) > 0
    THEN sum(volume) / (sum(CASE WHEN volume IS NULL THEN 0 ELSE covered_ms END) / 1000.0) END AS bytes_per_second_mean
FROM volumes GROUP BY cluster, topic, partition""",
    ),
    View(
        "topic_hours",
        "one row per topic and hour: what its partitions carry together",
        {"partition_hours": ("hour", *_PLACE, "bytes_per_second", "hour_number")},
        ("hour", "cluster", "topic", "bytes_per_second", "hour_number"),
        """SELECT hour, cluster, topic, sum(bytes_per_second) AS bytes_per_second, min(hour_number) AS hour_number
FROM partition_hours GROUP BY hour, cluster, topic""",
    ),
    View(
        "busiest_hours_of_topics",
        "one row per topic: its busiest hour, the first of equals",
        {"topic_hours": ("hour", "cluster", "topic", "bytes_per_second")},
        ("cluster", "topic", "bytes_per_second", "hour"),
        """SELECT cluster, topic, bytes_per_second, hour FROM (
  SELECT cluster, topic, bytes_per_second, hour,
    row_number() OVER (PARTITION BY cluster, topic ORDER BY bytes_per_second DESC, hour) AS place
  FROM topic_hours
) ranked WHERE place = 1""",
    ),
    View(
        "throughput_by_topic",
        "one row per topic: partitions, mean rate, and its busiest hour",
        {
            "partition_rates": (*_PLACE, "bytes_per_second_mean"),
            "busiest_hours_of_topics": ("hour", "bytes_per_second"),
        },
        ("cluster", "topic", "partitions", *_BUSIEST),
        """WITH means AS (
  SELECT cluster, topic, CAST(count(*) AS BIGINT) AS partitions, sum(bytes_per_second_mean) AS bytes_per_second_mean
  FROM partition_rates GROUP BY cluster, topic
)
SELECT means.cluster, means.topic, means.partitions, means.bytes_per_second_mean,
  busiest.bytes_per_second AS bytes_per_second_busiest_hour, busiest.hour AS busiest_hour
FROM means
LEFT JOIN busiest_hours_of_topics busiest ON busiest.cluster = means.cluster AND busiest.topic = means.topic""",
    ),
    View(
        "flow_hours",
        "one row per flow and hour: what its topics carry together",
        {FLOWS: ("flow", "cluster", "topic"), "topic_hours": ("hour", "cluster", "topic", "bytes_per_second")},
        ("hour", "flow", "bytes_per_second"),
        """SELECT hours.hour, flows.flow, sum(hours.bytes_per_second) AS bytes_per_second
FROM flows JOIN topic_hours hours ON hours.cluster = flows.cluster AND hours.topic = flows.topic
GROUP BY hours.hour, flows.flow""",
    ),
    View(
        "busiest_hours_of_flows",
        "one row per flow: its busiest hour, the first of equals",
        {"flow_hours": ("hour", "flow", "bytes_per_second")},
        ("flow", "bytes_per_second", "hour"),
        """SELECT flow, bytes_per_second, hour FROM (
  SELECT flow, bytes_per_second, hour,
    row_number() OVER (PARTITION BY flow ORDER BY bytes_per_second DESC, hour) AS place
  FROM flow_hours
) ranked WHERE place = 1""",
    ),
    View(
        "throughput_by_flow",
        "one row per flow: partitions, mean rate, and its busiest hour; a flow without a topic has no partition",
        {
            FLOWS: ("flow", "cluster", "topic"),
            "partition_rates": (*_PLACE, "bytes_per_second_mean"),
            "busiest_hours_of_flows": ("hour", "flow", "bytes_per_second"),
        },
        ("flow", "cluster", "partitions", *_BUSIEST),
        """WITH means AS (
  SELECT flows.flow, flows.cluster, CAST(count(rates.partition) AS BIGINT) AS partitions,
    sum(rates.bytes_per_second_mean) AS bytes_per_second_mean
  FROM flows LEFT JOIN partition_rates rates ON rates.cluster = flows.cluster AND rates.topic = flows.topic
  GROUP BY flows.flow, flows.cluster
)
SELECT means.flow, means.cluster, means.partitions, means.bytes_per_second_mean,
  busiest.bytes_per_second AS bytes_per_second_busiest_hour, busiest.hour AS busiest_hour
FROM means LEFT JOIN busiest_hours_of_flows busiest ON busiest.flow = means.flow""",
    ),
    View(
        "throughput_by_hour_of_week",
        "one row per hour of the week with a measurement, counted from Monday 0:00 UTC: the mean load of everything",
        {"partition_hours": ("hour", "bytes_per_second", "hour_of_week")},
        ("hour_of_week", "bytes_per_second", "hours"),
        """WITH loads AS (
  SELECT hour, hour_of_week, sum(bytes_per_second) AS bytes_per_second FROM partition_hours GROUP BY hour, hour_of_week
)
SELECT hour_of_week, avg(bytes_per_second) AS bytes_per_second, CAST(count(*) AS BIGINT) AS hours
FROM loads GROUP BY hour_of_week""",
    ),
    View(
        "flows_over_capacity",
        "one row per flow with an hour above its capacity in bytes per second: how many, of how many measured, and the"
        " busiest",
        {
            CAPACITIES: ("flow", "bytes_per_second"),
            "flow_hours": ("hour", "flow", "bytes_per_second"),
        },
        ("flow", "capacity", "hours_over", "hours", "bytes_per_second_busiest_hour", "busiest_hour"),
        """WITH ranked AS (
  SELECT hours.flow, hours.hour, hours.bytes_per_second, capacities.bytes_per_second AS capacity,
    CASE WHEN hours.bytes_per_second > capacities.bytes_per_second THEN 1 ELSE 0 END AS above,
    row_number() OVER (PARTITION BY hours.flow, capacities.bytes_per_second
      ORDER BY hours.bytes_per_second DESC, hours.hour) AS place
  FROM flow_hours hours JOIN capacities ON capacities.flow = hours.flow
)
SELECT flow, capacity, CAST(sum(above) AS BIGINT) AS hours_over, CAST(count(*) AS BIGINT) AS hours,
  max(bytes_per_second) AS bytes_per_second_busiest_hour, max(CASE WHEN place = 1 THEN hour END) AS busiest_hour
FROM ranked GROUP BY flow, capacity HAVING sum(above) > 0""",
    ),
    View(
        "growth_by_topic",
        "one row per topic: its mean rate in the newest 168 hours of the window and in the 168 before, and the one as a"
        " multiple of the other",
        {"topic_hours": ("cluster", "topic", "bytes_per_second", "hour_number")},
        ("cluster", "topic", "bytes_per_second_before", "bytes_per_second_now", "growth"),
        f"""WITH hours AS (
  SELECT cluster, topic, bytes_per_second, max(hour_number) OVER () - hour_number AS hours_ago FROM topic_hours
), weeks AS (
  SELECT cluster, topic, avg(CASE WHEN hours_ago < {WEEK_HOURS} THEN bytes_per_second END) AS now_rate,
    avg(CASE WHEN hours_ago BETWEEN {WEEK_HOURS} AND {2 * WEEK_HOURS - 1} THEN bytes_per_second END) AS before_rate
  FROM hours GROUP BY cluster, topic
)
SELECT cluster, topic, before_rate AS bytes_per_second_before, now_rate AS bytes_per_second_now,
  CASE WHEN before_rate > 0 THEN now_rate / before_rate END AS growth FROM weeks""",  # noqa: S608
    ),
    View(
        "reads_by_topic",
        "one row per topic of which Cruise Control's samples tell what is read: mean rates of what is written, read by"
        " consumers and replicated, and how often each byte is read",
        {SAMPLES: ("hour", *_PLACE, "source", "time_ms", "bytes_per_second", *_READ)},
        ("cluster", "topic", "bytes_per_second", *_READ, "reads"),
        """WITH distinct_samples AS (
  SELECT DISTINCT cluster, topic, partition, source, time_ms, bytes_per_second, bytes_out_per_second,
    replication_bytes_in_per_second, replication_bytes_out_per_second
  FROM samples WHERE hour >= '{first}' AND hour <= '{last}' AND bytes_out_per_second IS NOT NULL
), means AS (
  SELECT cluster, topic, partition, avg(bytes_per_second) AS written, avg(bytes_out_per_second) AS consumed,
    avg(replication_bytes_in_per_second) AS replicated_in, avg(replication_bytes_out_per_second) AS replicated_out
  FROM distinct_samples GROUP BY cluster, topic, partition
)
SELECT cluster, topic, sum(written) AS bytes_per_second, sum(consumed) AS bytes_out_per_second,
  sum(replicated_in) AS replication_bytes_in_per_second, sum(replicated_out) AS replication_bytes_out_per_second,
  CASE WHEN sum(written) > 0 THEN sum(consumed) / sum(written) END AS reads
FROM means GROUP BY cluster, topic""",
    ),
)
"""In order: a view needs only tables and views before it."""


def create_views(
    run: Callable[[str], Any], first: str = FIRST_HOUR, last: str = LAST_HOUR, tables: Sequence[str] = ()
) -> list[str]:
    """Create the views in an engine and return their names; `run` is `spark.sql`, or `sql` of a DuckDB connection.

    The engine has the table `throughput` under this name; `tables` are those of `FLOWS`, `CAPACITIES` and `samples`
    that it has, too, and views that need others are not created. `first` and `last`: hours of the window, such as
    2026-11-21T10.
    Mm2mgrError where a table lacks a column that a view needs, or an engine gives other columns than a view promises;
    ValueError for what is no hour.
    """
    for hour in (first, last):
        hour_start_ms(hour)
    present, columns = {"throughput", *tables}, dict[str, list[str]]()
    names = []
    for view in _creatable(present):
        for table, needed in view.needs.items():
            if table not in columns:
                columns[table] = _columns(run, table)
            lacking = sorted(set(needed) - set(columns[table]))
            if lacking:
                raise Mm2mgrError(
                    f"the view {view.name} needs {', '.join(lacking)} of {table}, which has no such column",
                    hint="give the engine the whole table under this name" if table in present else None,
                )
        text = view.sql.replace("{first}", first).replace("{last}", last)
        run(f"CREATE OR REPLACE TEMPORARY VIEW {view.name} AS {text}")
        gives = columns[view.name] = _columns(run, view.name)
        if gives != list(view.gives):
            raise Mm2mgrError(f"the view {view.name} gives {', '.join(gives)}, not {', '.join(view.gives)}")
        names.append(view.name)
    return names


def _creatable(tables: set[str]) -> Iterator[View]:
    available = set(tables)
    for view in VIEWS:
        if view.needs.keys() <= available:
            available.add(view.name)
            yield view


def _columns(run: Callable[[str], Any], table: str) -> list[str]:
    relation: Relation = run(f"SELECT * FROM {table} LIMIT 0")  # noqa: S608  # a name of this module
    return list(relation.columns)
