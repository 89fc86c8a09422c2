"""What workers and tasks each bring on a short link: MB/s by workers × tasks, as MirrorMaker 1's published table, beside forecasts.

    python benchmarks/workers_tasks.py [--workers 1 2 3] [--tasks 1 4 12] [--rtt 40] [--mbit 200] [--cpu 0.3] [--seconds 12]

Two brokers joined by an emulated link, workers of one group beside the target, a topic of 12 partitions loaded before, Kafka's default
clients. Each worker gets a share of a processor by a control group of its own once records arrive, so that a second one brings what a second
machine would, and no share is spent on starting tasks.
A task is limited by its connection over the link, a worker by its processor: tasks help up to what a worker moves, then workers do.
`forecast` is the link model's for so many tasks, and no more than what each worker moves, which is taken from the row with one worker and
most tasks. Published ("Cross Datacenter Mirroring with Kafka", 12 partitions): 1, 2 and 3 processes with 12 consumer threads 10, 19 and
29 MB/s at best, one process with 6 threads 6 MB/s. Needs root, a C compiler, `ip` and TUN. Exits with 1 when a forecast is off by more
than a quarter.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks.catch_up import limited  # noqa: E402  # the repository must be on the path first
from benchmarks.emulated_link import emulated_link, missing  # noqa: E402
from benchmarks.long_link_run import Bench, LinkWorker, Outcome  # noqa: E402
from benchmarks.long_link_settings import KAFKA, Case  # noqa: E402
from mm2mgr.errors import Mm2mgrError  # noqa: E402
from mm2mgr.sandbox.folder import claim  # noqa: E402
from mm2mgr.sandbox.runtime import kafka_runtime  # noqa: E402

FOLDER = Path(tempfile.gettempdir()) / "mm2mgr-workers-tasks"
PARTITIONS = 12
PUBLISHED = {1: 10.0, 2: 19.0, 3: 29.0}
WITHIN = 0.25
_WARM_UP_SECONDS = 12.0


@dataclass(frozen=True)
class Row:
    """What so many workers moved with so many tasks; `on_workers`: how many tasks each of them had."""

    workers: int
    on_workers: tuple[int, ...]
    outcome: Outcome

    @property
    def tasks(self) -> int:
        return self.outcome.case.tasks

    @property
    def rate(self) -> float:
        return self.outcome.megabytes_per_second

    def forecast(self, worker_rate: float) -> float:
        """Return MB/s: the link model's, and no more than each worker moves of its share of the tasks."""
        by_link = self.outcome.forecast.flow / 1e6
        return sum(min(worker_rate, by_link * tasks / self.tasks) for tasks in self.on_workers)


class FleetBench(Bench):
    """The long-link bench with several workers beside the target, each with a share `cpu` of a processor (None: no limit).

    A worker has its whole processor until the first records arrive: a share would be spent on starting tasks and
    compiling. `on_workers`: the tasks of each in the last row.
    """

    on_workers: tuple[int, ...] = ()
    fleet: tuple[LinkWorker, ...] = ()
    cpu: float | None = None

    def begin_workers(self, count: int) -> list[LinkWorker]:
        """Start more workers of the group beside the target, and return all of them."""
        first, broker = self.workers["target"], self.brokers["target"]
        more = [
            LinkWorker(
                f"worker-{number}",
                self._folder / f"worker-{number}",
                broker.bootstrap_servers,
                {"group.id": first.group_id},
                runtime=self._runtime,
            )
            for number in range(2, count + 1)
        ]
        with self.link.inside("target"):
            for worker in more:
                worker.heap = self._heap
                worker.begin()
            for worker in more:
                worker.wait_ready(300)
        self.fleet = (first, *more)
        return [*self.fleet]

    def arrivals(self, topic: str, partitions: int) -> Iterator[tuple[float, int]]:
        with ExitStack() as stack:
            is_limited = self.cpu is None
            for at, records in super().arrivals(topic, partitions):
                if records and not is_limited:
                    is_limited = True
                    for worker in self.fleet:
                        if worker.running and worker.process and self.cpu is not None:
                            stack.enter_context(limited(worker.name, worker.process.pid, self.cpu))
                yield at, records

    def _watch(self, mirror: object, seconds: float) -> Outcome:
        outcome = super()._watch(mirror, seconds)  # type: ignore[arg-type]
        status = self.rest("target", "GET", f"{mirror.url}/status")  # type: ignore[attr-defined]
        self.on_workers = tuple(sorted(Counter(task["worker_id"] for task in status["tasks"]).values(), reverse=True))
        return outcome


def measure(given: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each number of workers, most first, and of tasks."""
    with emulated_link(congestion=given.congestion) as link:
        claim(FOLDER, "workers-tasks benchmark")
        work = FOLDER / "run"
        try:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            bench = FleetBench(link, work, kafka_runtime(), given.heap)
            link.set(0.0002, 125e6)
            with bench.serving("stock"), ExitStack() as stack:
                bench.workers["source"].stop()
                workers = bench.begin_workers(max(given.workers))
                for worker in workers[1:]:
                    stack.callback(worker.stop)
                most = case_of(given, max(given.tasks))
                bench.preload(most, given.megabytes)
                bench.measure(most, _WARM_UP_SECONDS)  # compiles what is hot, before processors are limited
                bench.cpu = given.cpu
                yield from _rows(bench, workers, given)
                link.set(0.0002, 125e6)
        finally:
            shutil.rmtree(FOLDER, ignore_errors=True)


def _rows(bench: FleetBench, workers: list[LinkWorker], given: argparse.Namespace) -> Iterator[Row]:
    for count in range(max(given.workers), 0, -1):
        all_tasks = [tasks for tasks in given.tasks if tasks >= count]  # with fewer, some have nothing to do
        for place, tasks in enumerate(all_tasks if count in given.workers else ()):
            if place == 0:  # until the group is settled
                bench.measure(case_of(given, max(all_tasks)), 1.0)
            outcome = bench.measure(case_of(given, tasks), given.seconds)
            if outcome.stalled or outcome.error:
                text = f"{count} workers, {tasks} tasks: {outcome.error or 'nothing arrived'}"
                raise Mm2mgrError(text, hint="give workers more of a processor: --cpu")
            yield Row(count, bench.on_workers, outcome)
        if count > 1:
            with bench.link.inside("target"):
                workers[count - 1].stop()


def case_of(given: argparse.Namespace, tasks: int) -> Case:
    return Case("remote consume", given.rtt, given.mbit, PARTITIONS, tasks, KAFKA, "stock")


def print_table(rows: Sequence[Row]) -> float:
    """Print the rows beside their forecasts, and return the largest error of a forecast that was not fitted."""
    rows = sorted(rows, key=lambda row: (row.workers, row.tasks))
    single = next((row.rate for row in rows if (row.workers, row.tasks) == (1, 1)), None)
    fitted = max((row for row in rows if row.workers == 1), key=lambda row: row.tasks, default=rows[0])
    worst = 0.0
    print(
        f"{'workers':>7} {'tasks':>6} {'on each':>12} {'MB/s':>6} {'to 1x1':>7} {'link':>6} {'forecast':>9} {'off':>7} {'idle':>5}"
    )
    for row in rows:
        predicted = row.forecast(fitted.rate)
        off = predicted / row.rate - 1 if row.rate else float("inf")
        worst = worst if row is fitted else max(worst, abs(off))
        ratio = f"x{row.rate / single:.1f}" if single else "-"
        print(
            f"{row.workers:>7} {row.tasks:>6} {' + '.join(map(str, row.on_workers)):>12} {row.rate:>6.2f} {ratio:>7}"
            f" {row.outcome.forecast.flow / 1e6:>6.2f} {predicted:>9.2f} {'fitted' if row is fitted else f'{off:+.0%}':>7}"
            f" {row.outcome.idle_share:>5.0%}"
        )
    best = {count: max(row.rate for row in rows if row.workers == count) for count in {row.workers for row in rows}}
    if 1 in best:
        ours = ", ".join(f"{count}: x{rate / best[1]:.1f}" for count, rate in sorted(best.items()))
        theirs = ", ".join(f"{count}: x{rate / PUBLISHED[1]:.1f}" for count, rate in PUBLISHED.items() if count in best)
        print(f"best of each number of workers to one worker: {ours}; MirrorMaker 1 as published: {theirs}")
    print(
        f"largest error of a forecast: {worst:.0%}; idle share of the machine in the median: "
        f"{median(row.outcome.idle_share for row in rows):.0%} (near 0 the rates are what the machine could do)"
    )
    return worst


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; return 1 when the machine lacks something or a forecast is off by more than WITHIN."""
    parser = argparse.ArgumentParser(description="MB/s by workers and tasks on a short link.")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 4, 12])
    parser.add_argument("--rtt", type=int, default=40, metavar="MS")
    parser.add_argument("--mbit", type=int, default=200)
    parser.add_argument("--cpu", type=float, default=0.3, help="share of a processor that a worker has")
    parser.add_argument("--seconds", type=float, default=12.0, help="measured after the first records")
    parser.add_argument("--megabytes", type=int, default=400, help="of the topic")
    parser.add_argument("--heap", default="512m", help="of each worker")
    parser.add_argument("--congestion", default="cubic")
    given = parser.parse_args(words)
    if lacks := missing():
        print(f"{Path(__file__).name} needs {'; '.join(lacks)}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rows = list[Row]()
    try:
        for row in measure(given):
            rows.append(row)
            print(f"{row.workers} workers, {row.tasks} tasks: {row.rate:.2f} MB/s", file=sys.stderr, flush=True)
    except Mm2mgrError as error:
        print(f"error: {error}" + (f"\n{error.hint}" if error.hint else ""), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; namespaces, processes and folders are gone", file=sys.stderr)
        return 130
    return int(print_table(rows) > WITHIN)


if __name__ == "__main__":
    sys.exit(main())
