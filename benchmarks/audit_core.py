"""What the audit's core costs for each record, beside comparing in memory as a script does it.

    python benchmarks/audit_core.py [--records N …] [--bytes N]

Two logs of messages are made in batches, the second with a few faults. `floor` makes both and looks at each message's
value. `core` takes fingerprints, sums up blocks, aligns them, and compares the gaps. `Counter` puts every record of both into a
collections.Counter of (key, value, timestamp, headers), which tells what is missing and what came twice, but neither
order nor offsets. `set of digests` does the same with 16 bytes for each record. Each is a process of its own; no Kafka, no Spark.
Exits with 1 where the core's memory grows with the number of records, or not all faults are found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from mm2mgr.audit.blocks import BlockSums, align_blocks, block_bits
from mm2mgr.audit.differences import Unmatched, compare_gap, copies_to_find, settle, tally
from mm2mgr.audit.records import Records, fastest_algorithm, records_of

BATCH = 5_000
START_MS = 1_790_000_000_000
Batches = Iterator[list[Message]]


def message(number: int, place: int, payload: bytes, altered: bool = False) -> Message:
    """Return record `number` of the source, at an offset."""
    value = b"%020d" % number + payload[: -1 if altered else None]
    headers = [("trace", b"%d" % number)] if number % 10 == 0 else None
    return Message(  # type: ignore[call-arg]
        topic="t", partition=0, offset=place, key=b"key-%d" % (number % 1_000), value=value, headers=headers,
        timestamp=(1, START_MS + number // 10),
    )  # fmt: skip


def stretches_of(records: int, mirrored: bool) -> list[range]:
    """Return the source's record numbers in the order of a log: the mirrored one lost one of 250 000, and 500 came twice."""
    if not mirrored:
        return [range(records)]
    lost, half = range(100_000, records, 250_000), records // 2
    cuts = sorted({0, half, *(number + 1 for number in lost)})
    ends = sorted({half, records, *lost})
    stretches = [range(first, end) for first, end in zip(cuts, ends, strict=True)]
    place = next(row for row, stretch in enumerate(stretches) if stretch.start == half)
    return [*stretches[:place], range(half - 500, half), *stretches[place:]]


def batches(records: int, payload: bytes, mirrored: bool, first: int = 0, end: int = 1 << 60) -> Batches:
    """Make the messages of a log in order, those between two offsets."""
    before = 0
    for stretch in stretches_of(records, mirrored):
        wanted = stretch[max(0, first - before) : max(0, end - before)]
        offset = max(before, first)
        for row in range(0, len(wanted), BATCH):
            numbers = wanted[row : row + BATCH]
            yield [
                message(number, offset + row + place, payload, mirrored and number == 77_777)
                for place, number in enumerate(numbers)
            ]
        before += len(stretch)


def floor(records: int, payload: bytes) -> int:
    """Only make and look."""
    for mirrored in (False, True):
        for batch in batches(records, payload, mirrored):
            [item.value() for item in batch]
    return -1


def core(records: int, payload: bytes) -> int:
    """Take both passes; return how many differences there are."""
    algorithm = fastest_algorithm()

    def sums(mirrored: bool) -> BlockSums:
        built = BlockSums(block_bits(records))
        for batch in batches(records, payload, mirrored):
            built.add(records_of(batch, algorithm=algorithm))
        return built

    def read(mirrored: bool, bounds: tuple[int, int] = (0, 1 << 60)) -> Iterator[Records]:
        return (records_of(batch, algorithm=algorithm) for batch in batches(records, payload, mirrored, *bounds))

    gaps = align_blocks(sums(False).blocks(), sums(True).blocks()).gaps
    compared = [
        compare_gap(Records.join([*read(False, gap.source)]), Records.join([*read(True, gap.target)])) for gap in gaps
    ]
    rest = Unmatched.from_arrow(pa.Table.from_batches([gap.to_arrow() for gap in compared]))
    wanted = copies_to_find(rest)
    copies = []
    if len(wanted):  # a copy has the timestamp of its record
        first, last = (10 * (int(at) - START_MS) for at in (wanted.time_ms.min(), wanted.time_ms.max()))
        copies = [part.take(np.isin(part.hash, wanted.hash)) for part in read(False, (first, last + 10))]
    return sum(tally(settle(rest, copies))[0].values())


def counter(records: int, payload: bytes) -> int:
    """Count equal records on both sides."""
    counts: Counter[tuple[object, ...]] = Counter()
    for mirrored, step in ((False, 1), (True, -1)):
        for batch in batches(records, payload, mirrored):
            for item in batch:
                counts[item.key(), item.value(), item.timestamp()[1], tuple(item.headers() or ())] += step
    return sum(abs(count) for count in counts.values())


def digests(records: int, payload: bytes) -> int:
    """Count equal digests on both sides."""
    counts: Counter[bytes] = Counter()
    for mirrored, step in ((False, 1), (True, -1)):
        for batch in batches(records, payload, mirrored):
            for item in batch:
                text = repr((item.key(), item.value(), item.timestamp()[1], item.headers())).encode()
                counts[hashlib.blake2b(text, digest_size=16).digest()] += step
    return sum(abs(count) for count in counts.values())


WAYS: dict[str, Callable[[int, bytes], int]] = {
    "floor": floor, "core": core, "Counter": counter, "set of digests": digests,
}  # fmt: skip


def measure(way: str, records: int, size: int) -> dict[str, float]:
    """Run one way in a process of its own."""
    arguments = ["--way", way, "--records", str(records), "--bytes", str(size)]
    done = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, nargs="+", default=[1_000_000, 4_000_000], help="in each of two logs")
    parser.add_argument("--bytes", type=int, default=200, help="of a value")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    payload = random.Random(1).randbytes(max(1, options.bytes - 20))
    if options.way:
        began, cpu = time.perf_counter(), time.process_time()
        differences = WAYS[options.way](options.records[0], payload)
        usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        figures = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu, "mib": usage}
        print(json.dumps({**figures, "differences": differences}))
        return 0
    print(f"numpy {np.__version__}, {fastest_algorithm()}, values of {options.bytes} bytes")
    peaks, is_right = [], True
    for records in options.records:
        expected = len(range(100_000, records, 250_000)) + 501
        for way in WAYS if records == options.records[0] else ("floor", "core"):
            figures = measure(way, records, options.bytes)
            if way == "floor":
                base = figures
            if way == "core":
                peaks.append(figures["mib"])
                is_right = is_right and figures["differences"] == expected
            each = (figures["cpu"] - base["cpu"]) / (2 * records) * 1e9
            print(
                f"{2 * records:>11,} records  {way:<15} {figures['wall']:6.1f} s wall  {figures['cpu']:6.1f} s CPU"
                f"  {each:6.0f} ns a record beyond floor  {figures['mib']:6.0f} MiB"
                f"  {int(figures['differences']):>5} differences of {expected}"
            )
    is_flat = peaks[-1] < 1.3 * peaks[0]
    print(f"memory of the core: {' → '.join(f'{peak:.0f}' for peak in peaks)} MiB, {'flat' if is_flat else 'NOT flat'}")
    return 0 if is_flat and is_right else 1


if __name__ == "__main__":
    sys.exit(main())
