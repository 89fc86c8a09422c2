"""Measures the throughput job beside polars and DuckDB on the same samples, and checks that their answers are equal.

Each competitor is a fresh process, start-up included, in wall and CPU seconds: the job on Spark and in one process (tables →
hourly roll-ups and days in a table → throughput per partition), and the peers with the layout and query that suit them best:
files sorted by partition and time, integer ids, record sizes resolved beforehand. Then one more hour, questions, one and two
executors, further numbers of hours, and the memory and time of a large estate. polars and duckdb are this script's alone.

The roll-ups that mm2mgr writes hold more than the peers' answers: percentiles of records, gaps, resets, several sources, and
sketches that merge. Figures are in README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

REPOSITORY = Path(__file__).resolve().parent.parent
FIRST_HOUR = "2026-11-18T00"
HOUR_MS, SAMPLES_PER_HOUR = 3_600_000, 60
PARTITIONS, HOURS = 34_720, 48
IDS_PER_TOPIC = 16

_PEER_START = """
import sys, time, json
began = time.perf_counter()
raw, sizes, out = sys.argv[1:4]
"""
POLARS = (
    _PEER_START
    + """
import polars as pl
sizes = pl.scan_parquet(sizes)
# One key that is known to be sorted: groups are cut out instead of hashed, a quarter of the time. With one record size per partition:
# sums and quantiles are multiplied by it once, instead of a join of every sample.
times = {}
for name, file, by in (("hourly roll-ups", "hours", 1_000_000), ("throughput", "window", 1)):
    if file in sys.argv[4]:
        at = time.perf_counter()
        hour = pl.col("t") // 3_600_000 if by > 1 else 0
        found = (
            pl.scan_parquet(raw)
            .select(key=pl.col("id").cast(pl.Int64) * by + hour, d=pl.col("end").diff(), dt=pl.col("t").diff().cast(pl.Int32),
                    same=pl.col("id") == pl.col("id").shift(1))
            .filter(pl.col("same") & (pl.col("d") >= 0))
            .select(pl.col("key").set_sorted(), "dt", bytes="d", rate=pl.col("d") / (pl.col("dt") / 1000))
            .group_by("key", maintain_order=True)
            .agg(pl.len().alias("n"), pl.col("bytes").sum(), pl.col("dt").cast(pl.Int64).sum(),
                 pl.col("rate").quantile(0.5, "equiprobable").alias("p50"),
                 pl.col("rate").quantile(0.95, "equiprobable").alias("p95"), pl.col("rate").max().alias("max"))
            .with_columns(id=(pl.col("key") // by).cast(pl.Int32), hour=pl.col("key") % by)
            .join(sizes, on="id", maintain_order="left")
            .with_columns(pl.col("bytes", "p50", "p95", "max") * pl.col("size"))
        )
        found.collect(engine=sys.argv[5]).write_parquet(f"{out}/{file}.parquet")
        times[name] = time.perf_counter() - at
print(json.dumps(times))
"""
)
DUCKDB = (
    _PEER_START
    + """
import duckdb
con = duckdb.connect()
con.execute("SET threads=2"); con.execute("SET temp_directory='" + out + "'")
# Windows without PARTITION BY stream over the file's own order: no sort, no temporary copy.
# With one record size per partition: sums and quantiles are multiplied by it once, instead of a join of every sample.
rates = f'''WITH d AS (SELECT id, t, "end" - lag("end") OVER () AS d, t - lag(t) OVER () AS dt, id = lag(id) OVER () AS same FROM read_parquet('{raw}')),
 r AS (SELECT id, t // 3600000 AS hour, d, dt, d / (dt / 1000) AS rate FROM d WHERE same AND d >= 0),
 g AS (SELECT {{by}}, count(*) AS n, sum(d) AS d, sum(dt)::BIGINT AS dt, quantile_disc(rate, [0.5, 0.95]) AS q, max(rate) AS max FROM r GROUP BY {{by}})
 SELECT {{by}}, n, d * size AS bytes, dt, max * size AS max, q[1] * size AS p50, q[2] * size AS p95 FROM g JOIN read_parquet('{sizes}') USING (id) ORDER BY {{by}}'''
times = {}
for name, by, file in (("hourly roll-ups", "id, hour", "hours"), ("throughput", "id", "window")):
    if file in sys.argv[4]:
        at = time.perf_counter()
        con.execute(f"COPY ({rates.format(by=by)}) TO '{out}/{file}.parquet' (FORMAT parquet)")
        times[name] = time.perf_counter() - at
print(json.dumps(times))
"""
)
OURS = """
import sys, time, json
began = time.perf_counter()
from pathlib import Path
store = Path(sys.argv[1])
if sys.argv[2] == "spark":
    from mm2mgr.sandbox.runtime import find_java, spark_java_home
    from mm2mgr.throughput.job import run
    run(store, java_home=spark_java_home(find_java()), log_file=store / "spark.log")
else:
    from mm2mgr.throughput.rollup_job import make
    make(store)
rolled = time.perf_counter()
from mm2mgr.throughput.windows import last_hours, read_window
found = read_window(store, last_hours(store, None))
print(json.dumps({"roll-ups": rolled - began, "throughput": time.perf_counter() - rolled}))
"""
WARM = """
import sys, json
from pathlib import Path
from mm2mgr.operations.throughput import RollUpOrder, follow_roll_ups
from mm2mgr.operations.workspace import Workspace
from mm2mgr.throughput.rollup import throughput_table
store, rounds = Path(sys.argv[1]), 4
table = throughput_table(store)
def forget_an_hour(_):
    state = table.snapshot()
    newest = max(file.values[0] for file in state.files)
    table.replace(state, [file for file in state.files if file.values[0] == newest], [])
seconds = []
forget_an_hour(0)
for done in follow_roll_ups(Workspace(()), RollUpOrder(store, sys.argv[2] == "spark"), wait=forget_an_hour):
    assert not done.error and done.rolled_up, done
    seconds.append(round(done.seconds, 2))
    if len(seconds) == rounds:
        break
print(json.dumps({"seconds": seconds}))
"""
ESTATE = """
import sys, time, json, resource
from pathlib import Path
import numpy as np
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.store import SampleStore
from mm2mgr.samples.schema import hour_start_ms, hour_of
store, partitions, hours = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
topics = [f"topic-{n // 16:05d}" for n in range(partitions)]
numbers = [n % 16 for n in range(partitions)]
samples, start = SampleStore(store / "polls"), hour_start_ms("2026-11-18T00")
rounds = []
for minute in range(3):
    at = time.perf_counter()
    samples.append(Batch("c", "kafka-offsets", start + minute * 60_000, topics, numbers, end_offset=[minute] * partitions))
    rounds.append(time.perf_counter() - at)
from mm2mgr.throughput.hourly import hourly_rates
at, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = hourly_rates(store, 7 * 86400.0, "p95")
print(json.dumps({"append a round (s)": max(rounds), "read a week for size (s)": time.perf_counter() - at,
    "peak memory (GiB)": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, "partitions": len(found.table), "hours": len(found.hours)}))
"""
ON_EXECUTORS = """
import sys, time, json, os
from pathlib import Path
from pyspark.sql import SparkSession
from mm2mgr.throughput.job import run
spark = (SparkSession.builder.master(f"local-cluster[{sys.argv[2]},1,2048]").config("spark.ui.enabled", "false")
         .config("spark.executor.memory", "1g").config("spark.sql.shuffle.partitions", "2").getOrCreate())
spark.range(0, 4, 1, 4).count()
began = time.perf_counter()
run(Path(sys.argv[1]), spark=spark)
print(json.dumps({"job": time.perf_counter() - began}))
spark.stop()
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything asked for; return 1 when an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where samples and results go (1 GiB for 48 hours)")
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--hours", type=int, default=HOURS)
    parser.add_argument("--rounds", type=int, default=1, help="each competitor in turn, this often; the best counts")
    parser.add_argument("--series", type=int, nargs="*", default=[], help="further hours, to show that cost is linear")
    parser.add_argument("--alone", action="store_true", help="leave the peers out: only --series and --executors")
    parser.add_argument(
        "--estate", type=int, help="so many partitions: append rounds, and read a week of roll-ups for size"
    )
    parser.add_argument("--small", action="store_true", help="also 10 000 samples: start and end of the session count")
    parser.add_argument(
        "--before", type=Path, help="with --small: another checkout, measured in turn, such as the commit before"
    )
    parser.add_argument("--executors", action="store_true", help="also one executor against two (local-cluster)")
    given = parser.parse_args(arguments)
    folder = given.folder.resolve()
    if given.small:
        small_runs(folder, given)
    good = given.alone or against_peers(folder, given)
    if given.estate:
        estate(folder / f"estate-{given.estate}", given.estate)
    for hours in given.series:
        series_point(folder, given.partitions, hours)
    if given.executors:
        executors(folder, given.partitions, given.hours)
    return 0 if good else 1


def against_peers(folder: Path, given: argparse.Namespace) -> bool:
    """Run every competitor; say whether the answers are equal."""
    store = generate(folder / f"store-{given.hours}", given.partitions, given.hours)
    peers = peers_data(store, folder / f"peers-{given.hours}")
    print(
        f"{given.partitions} partitions × {given.hours} h × {SAMPLES_PER_HOUR} = {given.partitions * given.hours * SAMPLES_PER_HOUR / 1e6:.1f} million samples, load {os.getloadavg()[0]:.1f}"
    )
    for _ in range(given.rounds):
        for name, run in competitors(store, peers).items():
            seconds, cpu, stages = run()
            parts = ", ".join(f"{part} {value:.1f}" for part, value in stages.items())
            print(
                f"  {name:<18} {seconds:6.1f} s wall, {cpu:6.1f} s CPU  ({parts}; load {os.getloadavg()[0]:.1f})",
                flush=True,
            )
    equal = check(store, peers)
    one_more(store)
    print(f"answers {'equal' if equal else 'DIFFER'}")
    return equal


def small_runs(folder: Path, given: argparse.Namespace) -> None:
    """Roll up 10 000 samples as a user does, each from scratch: on Spark and in process, here and in another checkout."""
    store = generate(folder / "store-small", 168, 1)
    for _ in range(given.rounds):
        for checkout in [REPOSITORY, *([given.before.resolve()] if given.before else [])]:
            for option in ("--spark", "--no-spark"):
                shutil.rmtree(store / "throughput", ignore_errors=True)
                seconds, cpu, _ = timed(
                    *("-m", "mm2mgr", "throughput", option, "--top", "0", "--store", str(store)),
                    folder=store,
                    checkout=checkout,
                )
                load = os.getloadavg()[0]
                print(
                    f"  10 080 samples, {checkout.name} {option}: {seconds:.1f} s wall, {cpu:.1f} s CPU, load {load:.1f}"
                )


def competitors(store: Path, peers: Path) -> dict[str, Any]:
    """Return what to run, each from scratch and in a fresh process."""

    def ours(where: str) -> tuple[float, float, dict[str, float]]:
        shutil.rmtree(store / "throughput", ignore_errors=True)
        return timed("-c", OURS, str(store), where)

    def peer(code: str, name: str, *more: str) -> tuple[float, float, dict[str, float]]:
        return timed(
            "-c",
            code,
            str(peers / "raw.parquet"),
            str(peers / "sizes.parquet"),
            str(peers / name),
            "hours window",
            *more,
        )

    return {
        "mm2mgr on Spark": lambda: ours("spark"),
        "mm2mgr in process": lambda: ours("process"),
        "polars": lambda: peer(POLARS, "polars", "streaming"),
        "duckdb": lambda: peer(DUCKDB, "duckdb"),
    }


def timed(
    *command: str, folder: Path | None = None, checkout: Path = REPOSITORY
) -> tuple[float, float, dict[str, float]]:
    """Run a fresh Python; return wall and CPU seconds, its children's too, and what it prints as JSON in its last line."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(checkout), os.environ.get("PYTHONPATH", "")]),
        "POLARS_MAX_THREADS": "2",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        with subprocess.Popen(
            [sys.executable, *command], env=environment, cwd=folder, stdout=out, stderr=errors
        ) as process:
            seen = cpu_of_all(process)
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        out.seek(0)
        errors.seek(0)
        if process.returncode:
            raise SystemExit(errors.read()[-3000:])
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        last = out.read().splitlines()[-1:]
        return seconds, max(cpu, seen), json.loads(last[0]) if last and last[0].startswith("{") else {}


def cpu_of_all(process: subprocess.Popen[bytes]) -> float:
    """Wait for a process; return the CPU seconds of it and all below it, seen until a moment before each of them ended.

    Spark's Python workers are killed and no process waits for them, so the operating system adds them to no parent.
    """
    seen: dict[tuple[int, float], float] = {}
    root = psutil.Process(process.pid)
    while True:
        with suppress(psutil.Error):
            for one in [root, *root.children(recursive=True)]:
                with suppress(psutil.Error):
                    times = one.cpu_times()
                    seen[one.pid, one.create_time()] = times.user + times.system
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
            return sum(seen.values())


def generate(store: Path, partitions: int, hours: int) -> Path:
    """Write a compacted store: skewed partitions, a daily wave, noise by the minute, a reset in one partition of 64."""
    if (store / "samples").is_dir():
        return store
    from mm2mgr.samples.schema import hour_start_ms
    from mm2mgr.samples.tables import StoredTable

    table = StoredTable(store, "samples")
    table.create()
    chance = np.random.default_rng(5)
    base = chance.lognormal(3, 1.5, partitions) * 60
    end = np.zeros(partitions, np.int64)
    for number in range(hours):
        end = write_hour(table, hour_start_ms(FIRST_HOUR) + number * HOUR_MS, base, end, chance)
    return store


def names_of(ids: Any) -> dict[str, Any]:
    """Return cluster, topic and partition of every id, ordered as the table is."""
    topics = ids // IDS_PER_TOPIC
    count = int(ids.max(initial=0)) // IDS_PER_TOPIC + 1
    per_cluster = -(-count // 4)
    return {
        "cluster": pa.DictionaryArray.from_arrays(
            pa.array(topics // per_cluster, pa.int32()), pa.array([f"c{n}" for n in range(4)])
        ),
        "topic": pa.DictionaryArray.from_arrays(
            pa.array(topics, pa.int32()), pa.array([f"topic-{n:05d}" for n in range(count)])
        ),
        "partition": pa.array(ids % IDS_PER_TOPIC, pa.int32()),
    }


def write_hour(table: Any, start_ms: int, base: Any, end: Any, chance: Any) -> Any:
    """Write one hour of samples as `compact` does; return the end offsets after it."""
    from mm2mgr.samples.schema import hour_of

    count, wave = len(base), 1 + 0.5 * np.sin((start_ms // HOUR_MS % 24) / 24 * 6.28)
    steps = (base[:, None] * wave * (0.8 + 0.4 * chance.random((count, SAMPLES_PER_HOUR)))).astype(np.int64)
    offsets = end[:, None] + np.cumsum(steps, axis=1)
    torn = np.arange(start_ms // HOUR_MS % 64, count, 64)
    offsets[torn, 30:] -= offsets[torn, 29:30]
    sizes = np.full((count, SAMPLES_PER_HOUR), np.nan)
    sizes[:, ::10] = record_bytes(count)[:, None]
    rows = count * SAMPLES_PER_HOUR
    columns = {
        **names_of(np.repeat(np.arange(count), SAMPLES_PER_HOUR)),
        "time_ms": pa.array(np.tile(start_ms + np.arange(SAMPLES_PER_HOUR) * 60_000, count)),
        "end_offset": pa.array(np.maximum(offsets, 0).ravel()),
        "start_offset": pa.array(np.zeros(rows, np.int64)),
        "record_bytes": pa.array(sizes.ravel(), from_pandas=True),
        "resolution_ms": pa.array(np.zeros(rows, np.int32)),
        "source": pa.repeat(pa.scalar("kafka-offsets"), rows),
    }
    schema = table.file_schema
    whole = pa.table(
        [columns.get(each.name, pa.nulls(rows, each.type)).cast(each.type) for each in schema], schema=schema
    )
    from mm2mgr.samples.store import COMPACTED

    file = table.write_file((hour_of(start_ms),), [whole], encoding=COMPACTED)
    table.replace(table.snapshot(), [], [file])
    return np.maximum(offsets, 0)[:, -1]


def record_bytes(count: int) -> Any:
    """Return the record size of every partition."""
    return 200.0 + np.arange(count) % 800


def peers_data(store: Path, folder: Path) -> Path:
    """Give the peers only what they need, sorted by id and time, as their own files; sizes come resolved, as a gift."""
    if (folder / "raw.parquet").is_file():
        return folder
    import polars as pl
    from deltalake import DeltaTable

    for name in ("polars", "duckdb"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    number = pl.col("topic").str.slice(6).cast(pl.Int32) * IDS_PER_TOPIC + pl.col("partition")
    files = sorted(DeltaTable(str(store / "samples")).file_uris())
    raw = pl.concat(
        [
            pl.read_parquet(
                path, columns=["topic", "partition", "time_ms", "end_offset"], hive_partitioning=False
            ).select(id=number, t="time_ms", end="end_offset")
            for path in files
        ]
    ).sort("id", "t")
    raw.write_parquet(folder / "raw.parquet", compression="lz4")
    ids = np.arange(raw["id"].max() + 1, dtype=np.int32)
    pl.DataFrame({"id": ids, "size": record_bytes(len(ids))}).write_parquet(folder / "sizes.parquet")
    return folder


def check(store: Path, peers: Path) -> bool:
    """Compare every partition's hours and window: sums and exact percentiles to 1e-9, merged percentiles to 2 %."""
    from mm2mgr.throughput.rollup import throughput_table
    from mm2mgr.throughput.windows import last_hours, read_window

    table = throughput_table(store)
    columns = ["topic", "partition", "first_ms", "covered_ms", "bytes", "bytes_p50", "bytes_p95", "bytes_max"]
    hours = [file for file in table.files() if len(file.values[0]) == 13]
    mine = pa.concat_tables(
        [pq.read_table(store / "throughput" / file.path, columns=columns, partitioning=None) for file in hours]
    )
    topics = np.array([int(name[6:]) for name in mine["topic"].to_pylist()])
    order = np.lexsort((mine["first_ms"].to_numpy() // HOUR_MS, topics * IDS_PER_TOPIC + mine["partition"].to_numpy()))
    found = read_window(store, last_hours(store, None))
    numbers = np.array([int(name[6:]) for name in found.names.topics])
    by_id = np.argsort(numbers[found.names.topic] * IDS_PER_TOPIC + found.names.partition)
    names = {"bytes": "bytes", "covered_ms": "dt", "bytes_p50": "p50", "bytes_p95": "p95", "bytes_max": "max"}
    good = True
    for peer in ("polars", "duckdb"):
        theirs = pq.read_table(peers / peer / "hours.parquet")
        worst = max(_off(mine[our].to_numpy()[order], theirs[name].to_numpy()) for our, name in names.items())
        window = pq.read_table(peers / peer / "window.parquet")
        exact = max(
            _off(found.values["bytes_per_second_max"][by_id], window["max"].to_numpy()),
            _off(
                found.values["bytes_per_second_mean"][by_id],
                window["bytes"].to_numpy() / window["dt"].to_numpy() * 1000,
            ),
        )
        merged = max(
            _off(found.values[f"bytes_per_second_{name}"][by_id], window[name].to_numpy()) for name in ("p50", "p95")
        )
        print(
            f"  against {peer}: {len(theirs)} partition-hours, largest relative difference {worst:.1e}; {len(window)} partitions, mean and max {exact:.1e}, merged p50 and p95 {merged:.2%}"
        )
        good = good and worst < 1e-9 and exact < 1e-9 and merged <= 0.0201
    return good


def _off(mine: Any, theirs: Any) -> float:
    return float(np.max(np.abs(mine - theirs) / np.maximum(np.abs(theirs), 1e-9)))


def one_more(store: Path) -> None:
    """Roll up one more hour, as every hour of a day does, and ask a question."""
    from mm2mgr.throughput.rollup import throughput_table

    table = throughput_table(store)
    places: dict[str, Sequence[str]] = {"one more hour": ["--no-spark"], "the same on Spark": ["--spark"]}
    for name, more in places.items():
        state = table.snapshot()
        newest = max(file.values[0] for file in state.files)
        table.replace(state, [file for file in state.files if file.values[0] == newest], [])
        seconds, cpu = command(store, "throughput", "--top", "0", *more)
        load = os.getloadavg()[0]
        print(f"  {name}: {seconds:.1f} s wall, {cpu:.1f} s CPU, start-up included (bound 5 s), load {load:.1f}")
    for where in ("process", "spark"):
        _, _, told = timed("-c", WARM, str(store), where, folder=store)
        print(
            f"  an hour in a process that stays, {where}: {told['seconds']} s, load {os.getloadavg()[0]:.1f} (bound 2 s from the second on)"
        )
    for by in ("partition", "topic", "hour"):
        seconds, cpu = command(store, "throughput", "--show", "--top", "20", "--by", by)
        print(f"  throughput --show --top 20 --by {by}: {seconds:.2f} s wall, {cpu:.2f} s CPU (bound 1 s)")


def command(store: Path, *words: str) -> tuple[float, float]:
    """Run a command of mm2mgr as a user does, from the store's folder; return its wall clock and CPU seconds."""
    seconds, cpu, _ = timed("-m", "mm2mgr", *words, "--store", str(store), folder=store)
    return seconds, cpu


def series_point(folder: Path, partitions: int, hours: int) -> None:
    """Time the job alone on another number of hours."""
    store = generate(folder / f"store-{hours}", partitions, hours)
    shutil.rmtree(store / "throughput", ignore_errors=True)
    seconds, _, _ = timed("-c", OURS, str(store), "spark")
    millions = partitions * hours * SAMPLES_PER_HOUR / 1e6
    print(
        f"  {millions:6.1f} million samples: {seconds:6.1f} s wall, {seconds / millions:.3f} s a million, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def executors(folder: Path, partitions: int, hours: int) -> None:
    """Time the same job on one and on two executors of one core each, their JVMs started before the clock."""
    store = generate(folder / f"store-{hours}", partitions, hours)
    for count in (1, 2):
        shutil.rmtree(store / "throughput", ignore_errors=True)
        _, _, stages = timed("-c", ON_EXECUTORS, str(store), str(count))
        print(f"  {count} executor(s): {stages['job']:.1f} s, load {os.getloadavg()[0]:.1f}", flush=True)


def estate(store: Path, partitions: int) -> None:
    """Write a week of roll-ups of so many partitions, then append rounds and read the week as `size` does."""
    from mm2mgr.samples.schema import hour_of, hour_start_ms
    from mm2mgr.throughput.rollup import throughput_table

    table = throughput_table(store)
    if not table.exists():
        table.create()
        chance, names = np.random.default_rng(5), names_of(np.arange(partitions))
        for number in range(168):
            start = hour_start_ms("2026-11-10T00") + number * HOUR_MS
            rate = chance.lognormal(8, 1.5, partitions)
            columns = {
                **names,
                "source": pa.repeat("kafka-offsets", partitions),
                **{name: pa.repeat(pa.scalar(value, table.schema.field(name).type), partitions) for name, value in (("samples", 60), ("covered_ms", HOUR_MS), ("resets", 0), ("gaps", 0), ("first_ms", start), ("last_ms", start + HOUR_MS - 60_000), ("record_bytes", 200.0))},
                **{name: pa.array(rate * factor) for name, factor in (("bytes", 3600), ("records", 18), ("bytes_p50", 1), ("bytes_p95", 1.2), ("bytes_max", 1.3), ("records_p50", 0.005), ("records_p95", 0.006), ("records_max", 0.0065))},
            }  # fmt: skip
            rows = pa.table(
                [columns.get(each.name, pa.nulls(partitions, each.type)).cast(each.type) for each in table.file_schema],
                schema=table.file_schema,
            )
            file = table.write_file(
                (hour_of(start), "made up"), [rows], encoding={"use_dictionary": ["cluster", "topic", "source"]}
            )
            table.replace(table.snapshot(), [], [file])
    shutil.rmtree(store / "polls", ignore_errors=True)
    _, _, stages = timed("-c", ESTATE, str(store), str(partitions), "168")
    print(
        f"  {partitions} partitions: " + ", ".join(f"{name} {value:.2f}" for name, value in stages.items()), flush=True
    )


if __name__ == "__main__":
    sys.exit(main())
