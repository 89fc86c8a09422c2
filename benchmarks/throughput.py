"""Measures the throughput job beside polars and DuckDB on the same samples, and checks that their answers are equal.

In: how many partitions and hours. Out: seconds of a fresh process each, start-up included: the job (samples → hourly roll-ups
and days on disk → throughput per partition), the peers doing the same from the layout that suits them best, one more
hour, a question, one and two executors, and sizes for the line. polars and duckdb are this script's alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
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
rates = (
    pl.scan_parquet(raw)
    .with_columns(d=pl.col("end") - pl.col("end").shift(1), dt=pl.col("t") - pl.col("t").shift(1),
                  same=pl.col("id") == pl.col("id").shift(1))
    .filter(pl.col("same") & (pl.col("d") >= 0))
    .join(pl.scan_parquet(sizes), on="id", how="left", maintain_order="left")
    .select("id", "dt", hour=pl.col("t") // 3_600_000, bytes=pl.col("d") * pl.col("size"),
            rate=pl.col("d") * pl.col("size") / (pl.col("dt") / 1000))
)
def spread(by):
    return [pl.len().alias("n"), pl.col("bytes").sum(), pl.col("dt").sum(),
            pl.col("rate").quantile(0.5, "equiprobable").alias("p50"),
            pl.col("rate").quantile(0.95, "equiprobable").alias("p95"), pl.col("rate").max().alias("max")]
times = {}
if "hours" in sys.argv[4]:
    rates.group_by("id", "hour").agg(spread("h")).collect(engine=sys.argv[5]).sort("id", "hour").write_parquet(out + "/hours.parquet")
    times["hourly roll-ups"] = time.perf_counter() - began
if "window" in sys.argv[4]:
    at = time.perf_counter()
    rates.group_by("id").agg(spread("w")).collect(engine=sys.argv[5]).sort("id").write_parquet(out + "/window.parquet")
    times["throughput"] = time.perf_counter() - at
print(json.dumps(times))
"""
)
DUCKDB = (
    _PEER_START
    + """
import duckdb
con = duckdb.connect(raw, read_only=True)
con.execute("SET threads=2"); con.execute("SET preserve_insertion_order=false"); con.execute("SET temp_directory='" + out + "'")
rates = '''WITH d AS (SELECT id, t, "end" - lag("end") OVER w AS d, t - lag(t) OVER w AS dt FROM raw WINDOW w AS (PARTITION BY id ORDER BY t)),
 r AS (SELECT id, t // 3600000 AS hour, d * size AS bytes, dt, d * size / (dt / 1000) AS rate FROM d JOIN sizes USING (id) WHERE d >= 0)'''
what = "count(*) AS n, sum(bytes) AS bytes, sum(dt)::BIGINT AS dt, quantile_disc(rate, 0.5) AS p50, quantile_disc(rate, 0.95) AS p95, max(rate) AS max"
times = {}
for name, by, file in (("hourly roll-ups", "id, hour", "hours"), ("throughput", "id", "window")):
    if file in sys.argv[4]:
        at = time.perf_counter()
        con.execute(f"COPY ({rates} SELECT {by}, {what} FROM r GROUP BY {by} ORDER BY {by}) TO '{out}/{file}.parquet' (FORMAT parquet)")
        times[name] = time.perf_counter() - at
print(json.dumps(times))
"""
)
OURS = """
import sys, time, json
began = time.perf_counter()
from pathlib import Path
from mm2mgr.sandbox.java import find_java, spark_java_home
from mm2mgr.throughput.job import run
report = run(Path(sys.argv[1]), java_home=spark_java_home(find_java()), log_file=Path(sys.argv[1]) / "spark.log")
rolled = time.perf_counter()
from mm2mgr.throughput.windows import last_hours, read_window
found = read_window(Path(sys.argv[1]), last_hours(Path(sys.argv[1]), None))
print(json.dumps({"roll-ups": rolled - began, "throughput": time.perf_counter() - rolled}))
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
    """Run everything asked for; return 1 when an answer differs or the job is not the fastest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where samples and results go (1 GiB for 48 hours)")
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--hours", type=int, default=HOURS)
    parser.add_argument("--rounds", type=int, default=1, help="each competitor in turn, this often; the best counts")
    parser.add_argument("--series", type=int, nargs="*", default=[], help="further hours, to show that cost is linear")
    parser.add_argument("--alone", action="store_true", help="leave the peers out: only --series and --executors")
    parser.add_argument("--executors", action="store_true", help="also one executor against two (local-cluster)")
    given = parser.parse_args(arguments)
    folder = given.folder.resolve()
    good = given.alone or against_peers(folder, given)
    for hours in given.series:
        series_point(folder, given.partitions, hours)
    if given.executors:
        executors(folder, given.partitions, given.hours)
    return 0 if good else 1


def against_peers(folder: Path, given: argparse.Namespace) -> bool:
    """Run every competitor; say whether the answers are equal and the job is the fastest."""
    store = generate(folder / f"store-{given.hours}", given.partitions, given.hours)
    peers = peers_data(store, folder / f"peers-{given.hours}")
    print(
        f"{given.partitions} partitions × {given.hours} h × {SAMPLES_PER_HOUR} = {given.partitions * given.hours * SAMPLES_PER_HOUR / 1e6:.1f} million samples, load {os.getloadavg()[0]:.1f}"
    )
    best: dict[str, float] = {}
    for _ in range(given.rounds):
        for name, run in competitors(store, peers).items():
            seconds, told = run()
            best[name] = min(seconds, best.get(name, 1e9))
            parts = ", ".join(f"{part} {value:.1f}" for part, value in told.items())
            print(f"  {name:<10} {seconds:6.1f} s wall  ({parts}; load {os.getloadavg()[0]:.1f})", flush=True)
    equal = check(store, peers)
    one_more(store)
    fastest = min(best, key=lambda name: best[name])
    print(f"fastest: {fastest}; answers {'equal' if equal else 'DIFFER'}")
    return equal and fastest == "mm2mgr"


def competitors(store: Path, peers: Path) -> dict[str, Any]:
    """Return what to run, each from scratch and in a fresh process."""

    def ours() -> tuple[float, dict[str, float]]:
        shutil.rmtree(store / "rollups", ignore_errors=True)
        return timed("-c", OURS, str(store))

    def polars() -> tuple[float, dict[str, float]]:
        return timed(
            "-c",
            POLARS,
            str(peers / "raw.parquet"),
            str(peers / "sizes.parquet"),
            str(peers / "polars"),
            "hours window",
            "streaming",
        )

    def duckdb() -> tuple[float, dict[str, float]]:
        return timed("-c", DUCKDB, str(peers / "raw.duckdb"), "-", str(peers / "duckdb"), "hours window")

    return {"mm2mgr": ours, "polars": polars, "duckdb": duckdb}


def timed(*command: str) -> tuple[float, dict[str, float]]:
    """Run a fresh Python; return its wall clock and what it tells about its parts."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
        "POLARS_MAX_THREADS": "2",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return seconds, json.loads(done.stdout.splitlines()[-1])


def generate(store: Path, partitions: int, hours: int) -> Path:
    """Write a compacted store: skewed partitions, a daily wave, noise by the minute, a reset in one partition of 64."""
    if (store / "LAYOUT").is_file():
        return store
    from mm2mgr.samples.files import DICTIONARY_SCHEMA
    from mm2mgr.samples.schema import LAYOUT, hour_of, hour_start_ms

    (store / "dictionary").mkdir(parents=True)
    ids = np.arange(partitions)
    names = [
        pa.array(ids, pa.int32()),
        pa.array([f"c{i % 4}" for i in (ids // IDS_PER_TOPIC).tolist()]),
        pa.array([f"topic-{i:05d}" for i in (ids // IDS_PER_TOPIC).tolist()]),
        pa.array(ids % IDS_PER_TOPIC, pa.int32()),
        pa.nulls(partitions, pa.string()),
    ]
    pq.write_table(pa.Table.from_arrays(names, schema=DICTIONARY_SCHEMA), store / "dictionary" / "0.parquet")
    chance = np.random.default_rng(5)
    base = chance.lognormal(3, 1.5, partitions) * 60
    end = np.zeros(partitions, np.int64)
    for number in range(hours):
        start = hour_start_ms(FIRST_HOUR) + number * HOUR_MS
        end = write_hour(store / f"hour={hour_of(start)}" / "ids-00000000.parquet", start, base, end, chance)
    (store / "LAYOUT").write_text(LAYOUT + "\n")
    return store


def write_hour(path: Path, start_ms: int, base: Any, end: Any, chance: Any) -> Any:
    """Write one hour of samples as `compact` does; return the end offsets after it."""
    from mm2mgr.samples.files import SAMPLE_SCHEMA, tables_to

    count, wave = len(base), 1 + 0.5 * np.sin((start_ms // HOUR_MS % 24) / 24 * 6.28)
    steps = (base[:, None] * wave * (0.8 + 0.4 * chance.random((count, SAMPLES_PER_HOUR)))).astype(np.int64)
    offsets = end[:, None] + np.cumsum(steps, axis=1)
    torn = np.arange(start_ms // HOUR_MS % 64, count, 64)
    offsets[torn, 30:] -= offsets[torn, 29:30]
    sizes = np.full((count, SAMPLES_PER_HOUR), np.nan)
    sizes[:, ::10] = record_bytes(count)[:, None]
    rows = count * SAMPLES_PER_HOUR
    known = {
        "partition_id": np.repeat(np.arange(count, dtype=np.int32), SAMPLES_PER_HOUR),
        "time_ms": np.tile(start_ms + np.arange(SAMPLES_PER_HOUR) * 60_000, count),
        "end_offset": np.maximum(offsets, 0).ravel(),
        "start_offset": np.zeros(rows, np.int64),
        "record_bytes": sizes.ravel(),
        "resolution_ms": np.zeros(rows, np.int32),
        "source": pa.repeat(pa.scalar("kafka-offsets"), rows),
    }
    columns = [
        pa.array(known[field.name], field.type, from_pandas=True)
        if field.name in known and field.name != "source"
        else known.get(field.name, pa.nulls(rows, field.type))
        for field in SAMPLE_SCHEMA
    ]
    tables_to(path, iter([pa.Table.from_arrays(columns, schema=SAMPLE_SCHEMA)]))
    return np.maximum(offsets, 0)[:, -1]


def record_bytes(count: int) -> Any:
    """Return the record size of every partition."""
    return 200.0 + np.arange(count) % 800


def peers_data(store: Path, folder: Path) -> Path:
    """Give the peers only what they need, sorted by id and time, as their own files; sizes come resolved, as a gift."""
    if (folder / "raw.duckdb").is_file():
        return folder
    import duckdb
    import polars as pl

    for name in ("polars", "duckdb"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    count = pq.read_metadata(store / "dictionary" / "0.parquet").num_rows
    pl.DataFrame({"id": np.arange(count, dtype=np.int32), "size": record_bytes(count)}).write_parquet(
        folder / "sizes.parquet"
    )
    con = duckdb.connect(str(folder / "raw.duckdb"))
    con.execute("SET threads=2")
    con.execute(
        f"CREATE TABLE raw AS SELECT partition_id AS id, time_ms AS t, end_offset AS \"end\" FROM read_parquet('{store}/hour=*/*.parquet', hive_partitioning=false) ORDER BY id, t"
    )
    con.execute(f"CREATE TABLE sizes AS SELECT * FROM read_parquet('{folder}/sizes.parquet')")
    con.execute(
        f"COPY (SELECT * FROM raw ORDER BY id, t) TO '{folder}/duck.parquet' (FORMAT parquet, COMPRESSION zstd)"
    )
    con.close()
    pl.read_parquet(folder / "duck.parquet").write_parquet(folder / "raw.parquet", compression="lz4")
    (folder / "duck.parquet").unlink()
    return folder


def check(store: Path, peers: Path) -> bool:
    """Compare every partition's hours and window: sums and exact percentiles to 1e-9, merged percentiles to 2 %."""
    from mm2mgr.throughput.windows import last_hours, read_window

    files = sorted(store.glob("rollups/hour=*/part-*.parquet"))
    mine = pa.concat_tables(
        [
            pq.read_table(
                path,
                columns=["partition_id", "first_ms", "covered_ms", "bytes", "bytes_p50", "bytes_p95", "bytes_max"],
                partitioning=None,
            )
            for path in files
        ]
    )
    hour = mine["first_ms"].to_numpy() // HOUR_MS
    order = np.lexsort((hour, mine["partition_id"].to_numpy()))
    found = read_window(store, last_hours(store, None))
    by_id = np.searchsorted(found.place, found.names.of_id)
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
    newest = sorted(store.glob("rollups/hour=*"))[-1]
    places: dict[str, Sequence[str]] = {"one more hour": [], "the same on Spark": ["--spark"]}
    for name, more in places.items():
        shutil.rmtree(newest)
        seconds = command(store, "throughput", "--top", "0", *more)
        print(f"  {name}: {seconds:.1f} s wall, start-up included (bound 5 s), load {os.getloadavg()[0]:.1f}")
    for by in ("partition", "topic", "hour"):
        seconds = command(store, "throughput", "--show", "--top", "20", "--by", by)
        print(f"  throughput --show --top 20 --by {by}: {seconds:.2f} s wall (bound 1 s)")


def command(store: Path, *words: str) -> float:
    """Run a command of mm2mgr as a user does, from the store's folder; return its wall clock."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "mm2mgr", *words, "--store", str(store)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])},
        cwd=store,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return time.perf_counter() - began


def series_point(folder: Path, partitions: int, hours: int) -> None:
    """Time the job alone on another number of hours."""
    store = generate(folder / f"store-{hours}", partitions, hours)
    shutil.rmtree(store / "rollups", ignore_errors=True)
    seconds, _ = timed("-c", OURS, str(store))
    millions = partitions * hours * SAMPLES_PER_HOUR / 1e6
    print(
        f"  {millions:6.1f} million samples: {seconds:6.1f} s wall, {seconds / millions:.3f} s a million, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def executors(folder: Path, partitions: int, hours: int) -> None:
    """Time the same job on one and on two executors of one core each, their JVMs started before the clock."""
    store = generate(folder / f"store-{hours}", partitions, hours)
    for count in (1, 2):
        shutil.rmtree(store / "rollups", ignore_errors=True)
        _, told = timed("-c", ON_EXECUTORS, str(store), str(count))
        print(f"  {count} executor(s): {told['job']:.1f} s, load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
