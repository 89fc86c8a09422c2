"""Even tasks against stock Connect's, on real brokers: figures 6 to 9 of LinkedIn's article on load-balanced Brooklin.

    python benchmarks/balance.py [--seconds 60] [--megabytes 2.4] [--picture FILE.svg]

One source, one target, two Connect workers. Two flows mirror the same topics to different names: `control` with the stock class, `candidate`
with mm2mgr's plugin, and both begin with Connect's assignment. Traffic is steady and skewed: six topics with Zipf loads and eight partitions
each, keyed alike, so that a busy key is in the same partition of each. Each task may read as much as a quota of its consumer allows, so that a
task has a capacity on a small machine, too. mm2mgr samples, rolls up and rebalances the candidate; then both are measured over the same
seconds, from the ends of logs. Afterwards the traffic ends, both catch up, and `mm2mgr audit` reads every record.

Exits with 1 where stock's busiest task or worker has less than 1.5 times the mean, the candidate's more than 1.1 times, a task of the candidate is more than a tenth
away from what was planned, or an audit is not equal.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median, quantiles

from confluent_kafka.admin import AdminClient

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from balance_picture import Line, Panel, draw  # noqa: E402

from mm2mgr.assignment import ASSIGNED_KEY, Assignment, parse_assigned, round_robin, spread  # noqa: E402  # the repository must be on the path first
from mm2mgr.kafka.access import librdkafka_config  # noqa: E402
from mm2mgr.kafka.quotas import CONSUMER_RATE_KEY, QuotaEntity, write_quotas  # noqa: E402
from mm2mgr.operations import write_plugin  # noqa: E402
from mm2mgr.partitions import TopicPartition  # noqa: E402
from mm2mgr.text import rate_text  # noqa: E402
from tests.balance.shapes import stock_order, zipf_loads  # noqa: E402
from tests.live.command import Tree  # noqa: E402
from tests.live.conftest import WORKER  # noqa: E402
from tests.live.pair import Pair, serving_pair  # noqa: E402
from tests.live.seen import create, statuses, task_configs, until  # noqa: E402
from tests.sizing.traffic import Flowing, Producing, TrafficSet  # noqa: E402
from tests.sizing.traffic_measure import latest  # noqa: E402

TOPICS = {"carts": 1_000, "clicks": 500, "mail": 500, "orders": 2_000, "stock": 1_000, "views": 250}  # bytes per value
ORDER = ("orders", "clicks", "carts", "views", "stock", "mail")  # busiest first
PARTITIONS, TASKS, SEED, ZIPF, SKEW = 8, 4, 2, 0.8, 0.8
CAPACITY = 1.75  # of a task, as a multiple of the mean load
SAMPLED_SECONDS, SMOOTH_SECONDS, LOOK_SECONDS, LEVEL_SECONDS = 30, 5.0, 0.5, 3.0
UNEVEN, EVEN, WITHIN = 1.5, 1.1, 0.1
FLOWS = ("control", "candidate")
SECOND = "SECOND"
LISTENERS = {"PLAINTEXT": "PLAINTEXT", SECOND: "PLAINTEXT"}
"""Mirrors of one source are named by its alias, and an alias has addresses of its own: the brokers listen twice."""
TREE = """\
owner: bench
defaults:
  clusters: {{replication_factor: 1}}
  flows:
    tasks: {tasks}
    topics: {{include: [{topics}]}}
    refresh_interval: 30s
    checkpoints: false
    heartbeats: false
    # A few full requests per second instead of hundreds of small ones: two cores are enough then.
    source_consumer: {{fetch.min.bytes: 16384, fetch.max.wait.ms: 250, fetch.max.bytes: 262144}}
    record_producer: {{linger.ms: 50, batch.size: 65536}}
clusters:
  control: {{bootstrap_servers: ["{control}"]}}
  candidate: {{bootstrap_servers: ["{candidate}"]}}
  tgt: {{bootstrap_servers: ["{tgt}"]}}
connect:
  pair: {{url: [{urls}], kafka: tgt, workers: {{count: 2}}}}
flows:
  control: {{sources: [control], targets: [tgt]}}
  candidate: {{sources: [candidate], targets: [tgt], balance: plugin}}
"""
Traffic = Mapping[TopicPartition, Flowing]


def draw_traffic(seed: int, total: float) -> Traffic:
    """Return the load of each partition: topics by Zipf, partitions lognormal, nearly alike in all topics."""
    chance = Random(f"balance {seed}")
    keys = [chance.lognormvariate(0, SKEW) for _ in range(PARTITIONS)]
    traffic = {}
    for topic, load in zip(ORDER, zipf_loads(len(ORDER), ZIPF, total), strict=True):
        shares = [key * chance.lognormvariate(0, 0.2) for key in keys]
        for number, share in enumerate(shares):
            rate = load * share / sum(shares) / TOPICS[topic]
            traffic[TopicPartition(topic, number)] = Flowing(rate, (TOPICS[topic],))
    return traffic


@dataclass
class Watch(threading.Thread):
    """Looks at the ends of the source's and both flows' logs twice a second."""

    pair: Pair
    partitions: Sequence[TopicPartition]
    looks: list[tuple[float, list[int], dict[str, list[int]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        source, target = (
            AdminClient({**librdkafka_config(end), "log_level": 0}) for end in (self.pair.source, self.pair.target)
        )
        remote = {name: [remote_of(name, partition) for partition in self.partitions] for name in FLOWS}
        while not self.ended.wait(LOOK_SECONDS):
            arrived = latest(target, [partition for partitions in remote.values() for partition in partitions])
            written, seconds = latest(source, self.partitions), time.monotonic()
            ends = {name: [arrived[partition] for partition in partitions] for name, partitions in remote.items()}
            self.looks.append((seconds, [written[partition] for partition in self.partitions], ends))

    def rates(self, name: str, begin: float, end: float) -> dict[TopicPartition, float]:
        """Return the records per second that a flow mirrored, by partition."""
        first, last = self._look(begin), self._look(end)
        took = last[0] - first[0]
        counts = zip(self.partitions, first[2][name], last[2][name], strict=True)
        return {partition: (after - before) / took for partition, before, after in counts}

    def _look(self, seconds: float) -> tuple[float, list[int], dict[str, list[int]]]:
        return self.looks[max(0, bisect_right([look[0] for look in self.looks], seconds) - 1)]

    def lags(self, name: str, begin: float, end: float) -> list[list[float]]:
        """Return, for each look, how old the oldest record that waits is in each partition, in seconds."""
        times = [look[0] for look in self.looks]
        written = [[look[1][place] for look in self.looks] for place in range(len(self.partitions))]
        lags = []
        for seconds, _, ends in self.looks:
            if begin <= seconds <= end:
                lags.append(
                    [_age(times, series, there, seconds) for series, there in zip(written, ends[name], strict=True)]
                )
        return lags


def _age(times: Sequence[float], written: Sequence[int], arrived: int, now: float) -> float:
    """Return the age of the first record that has not arrived, between the looks at which it was not and was there."""
    place = bisect_right(written, arrived)
    if place >= len(written) or times[place] > now:
        return 0.0
    before = place - 1 if place else 0
    share = (arrived - written[before]) / max(1, written[place] - written[before])
    return max(0.0, now - (times[before] + share * (times[place] - times[before])))


def remote_of(name: str, partition: TopicPartition) -> TopicPartition:
    return TopicPartition(f"{name}.{partition.topic}", partition.partition)


def connector(name: str) -> str:
    return f"mm2.{name}.tgt.source.{name}"


@dataclass(frozen=True)
class Placed:
    """The partitions of each task of a flow, and the worker that runs it."""

    tasks: Assignment
    workers: tuple[str, ...]

    @classmethod
    def read(cls, pair: Pair, name: str) -> Placed:
        tasks = Assignment(
            tuple(parse_assigned(task[ASSIGNED_KEY]) for task in task_configs(pair.url, connector(name)))
        )
        places = sorted(statuses(pair.url)[connector(name)]["tasks"], key=lambda task: task["id"])
        return cls(tasks, tuple(task["worker_id"] for task in places))

    def loads(self, rates: Mapping[TopicPartition, float], by_worker: bool, in_bytes: bool) -> list[float]:
        """Return bytes or records per second of each task, or of each worker."""
        sized = {p: rate * TOPICS[p.topic] if in_bytes else rate for p, rate in rates.items()}
        tasks = self.tasks.loads(sized)
        if not by_worker:
            return tasks
        return [
            sum(load for load, worker in zip(tasks, self.workers, strict=True) if worker == name)
            for name in sorted(set(self.workers))
        ]


def percentile(values: Sequence[float], weights: Sequence[float], share: float) -> float:
    """Return the value that this share of the weight is at or below."""
    ordered = sorted(zip(values, weights, strict=True))
    left = share * sum(weights)
    for value, weight in ordered:
        left -= weight
        if left <= 0:
            return value
    return ordered[-1][0]


@dataclass
class Trial:
    """One run: what is started, what was measured, what is missed."""

    pair: Pair
    tree: Tree
    traffic: Traffic
    store: str
    missed: list[str] = field(default_factory=list)

    @property
    def total(self) -> float:
        return sum(flowing.bytes_per_second for flowing in self.traffic.values())

    def declare(self) -> None:
        """Write the tree, apply it, and let each task read no more than its capacity."""
        records = sum(flowing.records_per_second for flowing in self.traffic.values())
        capacity, by_records = round(CAPACITY * self.total / TASKS), round(CAPACITY * records / TASKS)
        self.tree.write(
            TREE.format(
                control=self.pair.src.bootstrap_servers,
                candidate=self.pair.src.bootstrap(SECOND),
                tgt=self.pair.tgt.bootstrap_servers,
                urls=", ".join(worker.url for worker in self.pair.workers),
                topics=", ".join(TOPICS),
                tasks=f"{{max: {TASKS}, capacity: {capacity}B/s, record_capacity: {by_records}}}",
            )
        )
        clients = [
            f"{name}->tgt|{connector(name)}-{task}|replication-consumer" for name in FLOWS for task in range(TASKS)
        ]
        refused = write_quotas(
            self.pair.source, dict.fromkeys(map(QuotaEntity, clients), capacity), rate_key=CONSUMER_RATE_KEY
        )
        assert not refused, refused
        say(self.tree.run("apply", "--yes"))
        for name in FLOWS:
            until(
                lambda name=name: Placed.read(self.pair, name).tasks.tasks,
                lambda tasks: len(tasks) == TASKS,
                "no tasks",
            )

    def rebalance(self) -> tuple[list[float], float]:
        """Sample, roll up, rebalance the candidate; return the bytes per second that are planned for each task, and
        when the tasks were made anew."""
        self.tree.run("sample", "--interval", "5s", "--duration", f"{SAMPLED_SECONDS}s", "--store", self.store)
        self.tree.run("throughput", "--no-spark", "--store", self.store)
        arguments = ("rebalance", "--store", self.store)
        by_flow = {judged["flow"].partition(":")[0]: judged for judged in self.tree.json(*arguments)["flows"]}
        plan = by_flow["candidate"]["plan"]
        planned = [sorted(TopicPartition(*partition) for partition in task) for task in plan["assignment"]]
        with self.tree.start(*arguments, "candidate", "--apply", "--yes") as running:
            until(
                lambda: [sorted(task) for task in Placed.read(self.pair, "candidate").tasks.tasks],
                lambda tasks: tasks == planned,
                "the candidate's tasks are not as planned",
            )
            changed = time.monotonic()
            say("".join(running.communicate(timeout=120)))
            assert running.returncode == 0
        return [float(task["bytes_per_second"]) for task in plan["tasks"]], changed

    def judge(self, watch: Watch, planned: Sequence[float], begin: float, end: float) -> dict[str, Placed]:
        """Print the spread of both flows, the lag, and the candidate's tasks beside what was planned."""
        placed = {name: Placed.read(self.pair, name) for name in FLOWS}
        print(f"{'busiest ÷ mean':<34}{'control (stock)':>18}{'candidate (plugin)':>20}")
        for unit, in_bytes in (("bytes/s", True), ("records/s", False)):
            for what, by_worker in ((f"{TASKS} tasks", False), ("2 workers", True)):
                spreads = {
                    name: spread(placed[name].loads(watch.rates(name, begin, end), by_worker, in_bytes))
                    for name in FLOWS
                }
                print(f"  {unit + ' over ' + what:<32}{spreads['control']:>18.2f}{spreads['candidate']:>20.2f}")
                self.missed += [f"stock is even: {unit} over {what}"] * (spreads["control"] < UNEVEN)
                self.missed += [f"the candidate is uneven: {unit} over {what}"] * (spreads["candidate"] > EVEN)
        weights = [flowing.records_per_second for flowing in self.traffic.values()]
        lags = {name: watch.lags(name, begin, end) for name in FLOWS}
        late = {
            name: percentile([lag for look in of for lag in look], weights * len(of), 0.95) for name, of in lags.items()
        }
        print(f"  {'lag, p95 (s)':<32}{late['control']:>18.1f}{late['candidate']:>20.1f}")
        rates = {name: placed[name].loads(watch.rates(name, begin, end), False, True) for name in FLOWS}
        errors = [rate / plan - 1 for rate, plan in zip(rates["candidate"], planned, strict=True)]
        for name, loads in rates.items():
            print(f"{name}: tasks at {', '.join(map(rate_text, loads))}")
        print(
            f"planned for the candidate: {', '.join(map(rate_text, planned))}; off by {', '.join(f'{error:+.1%}' for error in errors)}"
        )
        self.missed += ["a task's rate is not as planned"] * (max(map(abs, errors)) > WITHIN)
        return placed

    def prove(self, watch: Watch) -> None:
        """Wait until both flows have caught up, and audit every record."""
        source, target = (
            AdminClient({**librdkafka_config(end), "log_level": 0}) for end in (self.pair.source, self.pair.target)
        )
        written = latest(source, watch.partitions)
        for name in FLOWS:
            remote = [remote_of(name, partition) for partition in watch.partitions]
            until(
                lambda remote=remote: sum(latest(target, remote).values()),
                lambda count: count >= sum(written.values()),
                f"{name} caught up",
                seconds=300,
            )
        # Only what is stored is judged: a second or two later, all is.
        count = f"Equal: {2 * sum(written.values())} records"
        words = ("audit", *FLOWS, "--no-spark", "--store", self.store)
        text = until(lambda: self.tree.attempt(*words), lambda text: count in text, "not complete", seconds=60)
        say(text)


def say(text: str) -> None:
    print("".join(f"  | {line}\n" for line in text.splitlines() if line.strip()), flush=True)


def print_choice(seed: int) -> None:
    """Print what stock Connect makes of a thousand such sets, and of the one that is run."""
    rows = []
    for number in [seed, *range(1_000)]:
        rates = {p: flowing.bytes_per_second for p, flowing in draw_traffic(number, 1.0).items()}
        tasks = round_robin(stock_order(rates), TASKS).loads(rates)  # type: ignore[arg-type]  # of the keys alone
        rows.append((spread(tasks), spread([sum(tasks[0::2]), sum(tasks[1::2])])))
    for what, own, values in zip(("task", "worker"), rows[0], zip(*rows[1:], strict=True), strict=True):
        deciles = quantiles(values, n=10)
        print(
            f"stock's busiest {what} in 1000 sets of this kind: {median(values):.2f} × the mean in the median, {deciles[-1]:.2f} in one of ten; here {own:.2f}"
        )


def picture(watch: Watch, placed: Mapping[str, Placed], begin: float, changed: float, end: float) -> str:
    """Draw both flows from `begin` to `end`; the rebalance is marked."""
    moments = [begin + second for second in range(int(end - begin) + 1)]
    moments = [moment for moment in moments if not changed < moment < changed + SMOOTH_SECONDS]  # of both assignments
    seconds = [moment - begin for moment in moments]
    titles = {"control": "stock", "candidate": "plugin"}
    rows = []
    for name in FLOWS:
        before = placed["control"] if name == "candidate" else placed[name]
        lines: dict[str, list[list[float]]] = {}
        for moment in moments:
            rates = watch.rates(name, moment - SMOOTH_SECONDS, moment)
            now = before if moment <= changed else placed[name]
            for what, by_worker, in_bytes in (
                ("tasks", False, True),
                ("workers", True, True),
                ("records", True, False),
            ):
                scale = 1e-6 if in_bytes else 1e-3
                lines.setdefault(what, []).append([load * scale for load in now.loads(rates, by_worker, in_bytes)])
            ages = watch.lags(name, moment - 1, moment)
            lines.setdefault("lag", []).append([max((max(look) for look in ages), default=0.0)])
        panels = (
            ("tasks", "MB/s per task", "MB/s"),
            ("workers", "MB/s per worker", "MB/s"),
            ("records", "records per worker", "k/s"),
            ("lag", "oldest record that waits", "s"),
        )
        rows.append(
            [
                Panel(
                    f"{name} ({titles[name]}): {title}",
                    unit,
                    seconds,
                    [Line(f"{what} {number}", values) for number, values in enumerate(zip(*lines[what], strict=True))],
                )
                for what, title, unit in panels
            ]
        )
    return draw(rows, changed - begin, "One line per task or worker. Dashed: mm2mgr rebalance of the candidate")


def main() -> int:
    """Run the trial, print what it shows, draw the picture where asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="measured after the rebalance")
    parser.add_argument("--megabytes", type=float, default=2.4, help="MB/s on the source")
    parser.add_argument("--picture", type=Path, help="SVG to write")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that all that was started is ended
    print_choice(SEED)
    traffic = draw_traffic(SEED, given.megabytes * 1e6)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_plugin(folder / "plugins" / "mm2mgr")
        settings = {**WORKER, "plugin.path": str(folder / "plugins")}
        # As shipped (11 windows of a second), brokers let ten seconds' worth through at once, and then nothing.
        with serving_pair(folder, settings=settings, brokers={"quota.window.num": "2"}, listeners=LISTENERS) as pair:
            trial = Trial(pair, Tree(folder / "clusters"), traffic, str(folder / "store"))
            create(pair.source, TOPICS, PARTITIONS)
            watch = Watch(pair, sorted(traffic))
            trial.declare()
            sets = [TrafficSet("skewed", "zipf", traffic, "none")]
            with Producing(pair.src.bootstrap_servers, sets, history_seconds=1.0):
                watch.start()
                planned, changed = trial.rebalance()
                # The candidate has a backlog of the time before, too.
                until(
                    lambda: max(watch.lags("candidate", time.monotonic() - 2, time.monotonic())[-1]),
                    lambda lag: lag < LEVEL_SECONDS,
                    "level",
                    seconds=300,
                )
                begin = time.monotonic()
                time.sleep(given.seconds)
                end = time.monotonic()
            placed = trial.judge(watch, planned, begin, end)
            watch.ended.set()
            watch.join()
            trial.prove(watch)
        if given.picture:
            given.picture.write_text(picture(watch, placed, changed - 20, changed, end), encoding="utf-8")
    print("missed: " + ", ".join(trial.missed) if trial.missed else "every bar is held")
    return bool(trial.missed)


if __name__ == "__main__":
    sys.exit(main())
