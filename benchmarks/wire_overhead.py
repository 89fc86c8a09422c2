"""How many bytes a mirror puts on the wire for each byte of Kafka's: the factor of `mm2mgr cost` (`mm2mgr.cost.WIRE`).

    python benchmarks/wire_overhead.py [-o json] [--rtt MS] [--mbit N] [--megabytes N] [--cases NAME …]

A real broker and a real Connect worker on either side of an emulated link, one backlog mirrored a row. Bytes on the wire are counted by the
link, both ways, with IP and TCP headers, of packets of 1500 bytes; Kafka's own are the sizes of the topic's log files, on the side whose
bytes cross: the source's where the workers fetch over the link, the target's where they produce over it. What an idle mirror sends is a
row of its own, and taken off the others. Needs what `long_link.py` needs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks.emulated_link import Carried, Side, emulated_link, missing  # noqa: E402  # the repository must be on the path first
from benchmarks.long_link_run import Bench, read_brokers  # noqa: E402
from benchmarks.long_link_settings import COMPILED, KAFKA, Case, Ends, config  # noqa: E402
from mm2mgr.errors import Mm2mgrError  # noqa: E402
from mm2mgr.json_values import to_json  # noqa: E402
from mm2mgr.sandbox.folder import claim  # noqa: E402
from mm2mgr.sandbox.runtime import kafka_runtime  # noqa: E402

FOLDER = Path(tempfile.gettempdir()) / "mm2mgr-wire-overhead"
_IDLE_SECONDS = 4.0
_LONGEST_SECONDS = 90.0
_PARTITIONS, _TASKS = 4, 2


@dataclass(frozen=True)
class WireCase:
    """One row: where the workers are, the records, what compresses them (the topic's own codec or the mirror's), and whose settings."""

    name: str
    placement: str
    record_bytes: int
    stored: str = "none"
    sent: str = "none"
    recipe: str = COMPILED


CASES = (
    WireCase("consume, 1 KB", "remote consume", 1024),
    WireCase("consume, 1 KB, Kafka's defaults", "remote consume", 1024, recipe=KAFKA),
    WireCase("consume, 100 B", "remote consume", 100),
    WireCase("consume, 10 KB", "remote consume", 10_240),
    WireCase("consume, 1 KB lz4", "remote consume", 1024, "lz4"),
    WireCase("consume, 1 KB zstd", "remote consume", 1024, "zstd"),
    WireCase("produce, 1 KB", "remote produce", 1024),
    WireCase("produce, 1 KB, Kafka's defaults", "remote produce", 1024, recipe=KAFKA),
    WireCase("produce, 100 B", "remote produce", 100),
    WireCase("produce, 1 KB zstd", "remote produce", 1024, sent="zstd"),
)


@dataclass(frozen=True)
class WireBytes:
    """What a mirror put on the wire for `kafka_bytes` of log: with the records and against them; and an idle one per second, both ways."""

    case: str
    kafka_bytes: int
    forward_bytes: float
    back_bytes: float
    idle_bytes_per_second: float
    seconds: float

    @property
    def forward(self) -> float:
        return self.forward_bytes / self.kafka_bytes

    @property
    def back(self) -> float:
        return self.back_bytes / self.kafka_bytes


def measure(bench: Bench, wire: WireCase, number: int, given: argparse.Namespace) -> WireBytes:
    """Mirror the backlog of one row, and return what crossed the link for it."""
    case = Case(
        wire.placement, given.rtt, given.mbit, _PARTITIONS, _TASKS, wire.recipe, "-1", wire.record_bytes, wire.stored
    )
    side: Side = "target" if case.placement == "remote consume" else "source"
    worker, name = bench.workers[side], f"w{number}"
    source, target = bench.brokers["source"].bootstrap_servers, bench.brokers["target"].bootstrap_servers
    ends = Ends(name, source, target, case.topic, worker.url)
    with bench.link.inside(side):
        settings = config(case, ends, FOLDER / "run" / f"tree-{name}", read_brokers)
    if wire.sent != "none":
        settings["producer.override.compression.type"] = wire.sent
    url, topic = f"{worker.url}/connectors/{name}", f"{name}.{case.topic}"
    before = bench.link.read()
    bench.rest(side, "PUT", f"{url}/config", settings)
    try:
        after = _arrived(bench, topic, bench.written(case.topic))
        time.sleep(1.0)
        idle_from = bench.link.read()
        time.sleep(_IDLE_SECONDS)
        idle = [rate * (after.at - before.at) for rate in _rates(idle_from, bench.link.read())]
        place: Side = "source" if case.placement == "remote consume" else "target"
        folder = bench.brokers[place].directory / "data"
        logs = folder.glob(f"{case.topic if place == 'source' else topic}-*/*.log")
        size = sum(file.stat().st_size for file in logs)
        forward, back = after.bytes - before.bytes - idle[0], after.back_bytes - before.back_bytes - idle[1]
        return WireBytes(
            wire.name, size, forward, back, sum(_rates(idle_from, bench.link.read())), after.at - before.at
        )
    finally:
        bench.take_away(side, url, topic)


def _rates(before: Carried, after: Carried) -> tuple[float, float]:
    seconds = after.at - before.at
    return (after.bytes - before.bytes) / seconds, (after.back_bytes - before.back_bytes) / seconds


def _arrived(bench: Bench, topic: str, count: int) -> Carried:
    deadline = time.monotonic() + _LONGEST_SECONDS
    for _, records in bench.arrivals(topic, _PARTITIONS):
        if records >= count:
            return bench.link.read()
        if time.monotonic() > deadline:
            raise Mm2mgrError(f"{topic}: {records} of {count} records in {_LONGEST_SECONDS:g} s")
    raise AssertionError


def run(chosen: Sequence[WireCase], given: argparse.Namespace) -> Iterator[WireBytes]:
    """Measure the rows one after the other."""
    runtime = kafka_runtime()
    with emulated_link("mm2mgr-wire") as link:
        claim(FOLDER, "wire-overhead benchmark")
        work = FOLDER / "run"
        try:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            bench = Bench(link, work, runtime, "512m")
            link.set(0.0002, 125e6)
            with bench.serving("-1"):
                for wire in chosen:
                    row = Case(
                        wire.placement,
                        given.rtt,
                        given.mbit,
                        _PARTITIONS,
                        _TASKS,
                        wire.recipe,
                        "-1",
                        wire.record_bytes,
                        wire.stored,
                    )
                    bench.preload(row, given.megabytes)
                link.set(given.rtt / 1000, given.mbit * 1e6 / 8)
                for number, wire in enumerate(chosen):
                    yield measure(bench, wire, number, given)
        finally:
            shutil.rmtree(FOLDER, ignore_errors=True)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and print a line a row; return 1 when the machine lacks something."""
    parser = argparse.ArgumentParser(description="Bytes on the wire for each byte of Kafka's.")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--rtt", type=int, default=20, metavar="MS")
    parser.add_argument("--mbit", type=int, default=400)
    parser.add_argument("--megabytes", type=int, default=40, help="backlog of each topic, before compression")
    parser.add_argument("--cases", nargs="+", default=[case.name for case in CASES])
    given = parser.parse_args(words)
    if lacks := missing():
        print(f"{Path(__file__).name} needs {'; '.join(lacks)}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends in order, as Ctrl-C does
    rows: list[WireBytes] = []
    said = sys.stderr if given.output == "json" else sys.stdout
    try:
        print(f"{'':34}  Kafka MB  on the wire   back  both   idle B/s", file=said)
        for one in run([case for case in CASES if case.name in given.cases], given):
            rows.append(one)
            print(
                f"{one.case:34}  {one.kafka_bytes / 1e6:8.1f}  {one.forward:11.4f}  {one.back:5.4f}  {one.forward + one.back:5.4f}  "
                f"{one.idle_bytes_per_second:6.0f}",
                file=said,
                flush=True,
            )
    except Mm2mgrError as error:
        print(f"error: {error}" + (f"\n{error.hint}" if error.hint else ""), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if given.output == "json":
            print(json.dumps(to_json(rows), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
