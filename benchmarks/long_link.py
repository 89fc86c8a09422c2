"""How fast MirrorMaker mirrors over a long link, with Kafka's defaults, a published recipe and other settings, in one run.

    python benchmarks/long_link.py [--quick] [-o json] [--rtt MS …] [--mbit N] [--shapes PARTITIONSxTASKS …] [--recipes …] [--repeat N]

Two network namespaces joined by an emulated link, a real broker and a real Connect worker in each, topics loaded before. A line a row:
MB/s of record values that reached the target's log, the share of the link, the ratio to Kafka's defaults of the same run, and how busy
the machine was (idle share of all cores while it measured: near 0 the figure is a lower bound). Needs root, a C compiler, `ip` and TUN.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks.emulated_link import emulated_link, missing  # noqa: E402  # the repository must be on the path first
from benchmarks.long_link_run import Bench, Outcome  # noqa: E402
from benchmarks.long_link_settings import ARTICLE, COMPILED, KAFKA, PLACEMENTS, RECIPES, Case, corners  # noqa: E402
from mm2mgr.errors import Mm2mgrError  # noqa: E402
from mm2mgr.json_values import to_json  # noqa: E402
from mm2mgr.sandbox.folder import claim  # noqa: E402
from mm2mgr.sandbox.runtime import kafka_runtime  # noqa: E402

FOLDER = Path(tempfile.gettempdir()) / "mm2mgr-long-link"
_NARROWEST = 6


def cases(given: argparse.Namespace) -> Iterator[Case]:
    """List the rows: by brokers, since these restart for it, and Kafka's defaults first, which the others are compared with."""
    for brokers in given.brokers:
        for rtt in given.rtt:
            for placement in given.placements:
                for partitions, tasks in given.shapes:
                    for recipe in given.recipes:
                        if brokers == "stock" or recipe not in given.stock_only:
                            yield Case(
                                placement, rtt, given.mbit, partitions, tasks, recipe, brokers, given.record_bytes
                            )


def run(rows: Sequence[Case], given: argparse.Namespace) -> Iterator[Outcome]:
    """Measure the rows one after the other; of repeated ones the fastest counts."""
    runtime = kafka_runtime()
    with emulated_link(congestion=given.congestion) as link:  # and with it the folder: one run at a time
        claim(FOLDER, "long-link benchmark")
        print(f"workers -Xmx{given.heap}, congestion control {link.congestion}; MB/s of record values", file=sys.stderr)
        work = FOLDER / "run"
        try:
            shutil.rmtree(work, ignore_errors=True)  # of a run that was killed
            work.mkdir()
            bench = Bench(link, work, runtime, given.heap)
            for brokers in dict.fromkeys(case.brokers for case in rows):
                link.set(0.0002, 125e6)
                with bench.serving(brokers):
                    for case in rows:
                        bench.preload(case, int(min(given.megabytes, max(60, 30 * case.link_bytes_per_second / 1e6))))
                    for case in (case for case in rows if case.brokers == brokers):
                        # Long enough for a few of the largest records of every task.
                        least = 3 * case.tasks * case.record_bytes / case.link_bytes_per_second
                        times = [bench.measure(case, max(given.seconds, least)) for _ in range(given.repeat)]
                        yield max(times, key=lambda one: one.megabytes_per_second)
                    link.set(0.0002, 125e6)
        finally:
            shutil.rmtree(FOLDER, ignore_errors=True)


def cells(one: Outcome, defaults: float | None) -> dict[str, str]:
    """Return what became of one row, by column."""
    case, rate = one.case, one.megabytes_per_second
    return {
        "placement": f"{case.placement:<14}",
        "RTT": f"{case.rtt_ms} ms",
        "Mbit/s": f"{case.mbit}",
        "record": f"{case.record_bytes}" + (f" {case.compression}" if case.compression != "none" else ""),
        "topic": f"{case.partitions}p {case.tasks}t",
        "settings": f"{case.recipe:<16}",
        "brokers": f"{case.brokers}",
        "MB/s": f"{rate:.2f}",
        "forecast": f"{one.forecast.flow / 1e6:.2f}",
        "of link": f"{rate * 1e6 / case.link_bytes_per_second:.0%}",
        "ratio": f"x{rate / defaults:.1f}" if defaults else "-",
        "wire": f"{one.wire_megabytes_per_second:.1f}",
        "drops": f"{one.drops}",
        "load": f"{one.load:.0f}",
        "idle": f"{one.idle_share:.0%}",
        "RSS MiB": f"{one.worker_rss_mib}",
        "": one.error or ("nothing arrived" if one.stalled else ""),
    }


def row(texts: Sequence[str], heads: Sequence[str]) -> str:
    """Return one line of the table; a column is as wide as its head or its padded text."""
    wide = {"placement": 14, "settings": 16, "record": 13, "topic": 8}
    pairs = zip(texts, heads, strict=True)
    return "  ".join(f"{text:>{max(len(head), wide.get(head, _NARROWEST))}}" for text, head in pairs).rstrip()


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print a line per row and at the end with `-o json` all of them; return 1 when the machine lacks something or a corner stalls."""
    given = _options(words)
    if lacks := missing():
        print(f"{Path(__file__).name} needs {'; '.join(lacks)}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends in order, as Ctrl-C does
    signal.signal(signal.SIGHUP, signal.default_int_handler)
    rows, said = (
        corners() if given.corners else list(cases(given)),
        sys.stderr if given.output == "json" else sys.stdout,
    )
    outcomes: list[Outcome] = []
    base: dict[tuple[object, ...], float] = {}
    try:
        for one in run(rows, given):
            key = (one.case.placement, one.case.rtt_ms, one.case.partitions, one.case.tasks)
            if one.case.recipe == KAFKA:
                base.setdefault(key, one.megabytes_per_second)
            outcomes.append(one)
            shown = cells(one, base.get(key))
            if len(outcomes) == 1:
                print(row(list(shown), list(shown)), file=said)
            print(row(list(shown.values()), list(shown)), file=said, flush=True)
    except Mm2mgrError as error:
        print(f"error: {error}" + (f"\n{error.hint}" if error.hint else ""), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; namespaces, processes and folders are gone", file=sys.stderr)
        return 130
    finally:
        if given.output == "json":
            print(json.dumps(to_json(outcomes), indent=1))
    return 1 if given.corners and any(one.stalled or one.error for one in outcomes) else 0


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="MirrorMaker over an emulated long link.")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--quick", action="store_true", help="100 ms only")
    parser.add_argument("--corners", action="store_true", help="extreme links, topics and records, with 512 MB workers")
    parser.add_argument("--rtt", type=int, nargs="+", default=[20, 100, 200], metavar="MS")
    parser.add_argument("--mbit", type=int, default=200)
    parser.add_argument("--shapes", type=_shape, nargs="+", default=[(1, 1), (12, 4)], metavar="PARTITIONSxTASKS")
    parser.add_argument("--placements", nargs="+", default=PLACEMENTS, choices=PLACEMENTS)
    parser.add_argument("--recipes", nargs="+", default=[KAFKA, ARTICLE, COMPILED], choices=RECIPES)
    parser.add_argument("--brokers", nargs="+", default=["stock", "-1"], choices=("stock", "-1"), help="socket buffers")
    parser.add_argument(
        "--stock-only", nargs="*", default=[KAFKA, ARTICLE], help="recipes without a row for tuned brokers"
    )
    parser.add_argument("--record-bytes", type=int, default=1024)
    parser.add_argument("--megabytes", type=int, default=600, help="backlog of each topic")
    parser.add_argument("--seconds", type=float, default=12.0, help="measured after the first records")
    parser.add_argument("--repeat", type=int, default=1, help="the fastest counts")
    parser.add_argument("--congestion", default="cubic", help="of TCP; reno where the kernel does not permit it")
    parser.add_argument("--heap", help="of each worker; 2g, what Kafka's own script gives, with --corners 512m")
    given = parser.parse_args(words)
    if given.quick:
        given.rtt = [100]
    given.heap = given.heap or ("512m" if given.corners else "2g")
    return given


def _shape(text: str) -> tuple[int, int]:
    partitions, tasks = (int(word) for word in text.split("x"))
    return partitions, tasks


if __name__ == "__main__":
    sys.exit(main())
