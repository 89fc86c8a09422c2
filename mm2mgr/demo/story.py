"""The steps of `mm2mgr demo`: the commands that a team runs, one after the other, on a sandbox with live traffic.

The folder is claimed before anything starts, and emptied only of what an earlier demo wrote.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from mm2mgr import operations, timing
from mm2mgr.cli import cli
from mm2mgr.errors import KafkaError, Mm2mgrError, SandboxError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.records import Producer, commit_group
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.operations import Plan, Workspace
from mm2mgr.output.apply_text import say_applied, say_event
from mm2mgr.output.console import say, talk
from mm2mgr.output.plan_text import say_plan, say_topology
from mm2mgr.output.status_text import say_status
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.schema import PARTITIONED_BY
from mm2mgr.sandbox.folder import as_written, claim, is_claimed, only_one, write_tree, writing
from mm2mgr.sandbox.layout import Sandbox
from mm2mgr.spec.files import SIZING
from mm2mgr.text import few, number_of
from mm2mgr.topology import Flow

_PATIENCE_SECONDS = 90.0
_STORED_SECONDS = 30.0
_USE = "demo"
_HOURS = 2  # a demo samples for ten minutes at most
_STORE = {*PARTITIONED_BY, "spark.log"}


def run_demo(directory: Path, *, keep: bool, measure_seconds: float) -> int:
    """Run the demo; return 0 only when the proof holds, the second plan is empty and every flow is healthy."""
    with demo_folder(directory):
        return play_story(_Story(directory, measure_seconds), Sandbox(directory / "sandbox"), keep=keep)


def play_story(story: Story, sandbox: Sandbox, *, keep: bool) -> int:
    """Play a story, and stop all that it started, unless it is to be kept; return its exit code."""
    try:
        with ExitStack() as traffic:
            code = story.run(sandbox, traffic)
    except BaseException:
        talk("stopping what the demo started")
        sandbox.stop(progress=talk)
        raise
    if keep:
        say()
        say(f"Everything is still running. Look around: mm2mgr --clusters {story.tree} status")
        say(f"Stop it: mm2mgr sandbox down --dir {sandbox.directory}")
    else:
        sandbox.stop(progress=talk)
    say()
    say(f"Demo {'succeeded' if code == 0 else 'FAILED'} in {timing.now() - story.begun:.0f} s", style="bold")
    return code


class Story(ABC):
    """Steps that are printed with what a user would type, on a sandbox with traffic that begins in one of them."""

    steps: int
    flow: str
    rates: Mapping[str, tuple[int, ...]]

    def __init__(self, directory: Path, measure_seconds: float) -> None:
        self.directory = directory
        self.tree = directory / "clusters"
        self.samples = directory / "samples"
        self.measure_seconds, self.measured = measure_seconds, f"{measure_seconds:g}s"
        self.begun = timing.now()
        self.number = 0

    @abstractmethod
    def run(self, sandbox: Sandbox, stack: ExitStack) -> int:
        """Play all steps; return 0 only when all that is promised was seen. `stack` ends what they start."""

    def step(self, title: str, command: str = "") -> None:
        self.number += 1
        elapsed = timing.now() - self.begun
        say()
        say(f"[{self.number}/{self.steps}] {title}  ({elapsed:.0f} s)", style="bold cyan")
        if command:
            say(f"$ mm2mgr --clusters {self.tree} {command}" if command[0] != "$" else command, style="dim")

    def play(self, title: str, *words: str, code: int = 0) -> None:
        """Run a command as people type it; stop the demo unless it ends with `code`: it has explained why."""
        self.step(title, shlex.join(words))
        self.command(code, *words)

    def command(self, code: int, *words: str) -> None:
        """Run a command without a step of its own; stop the demo unless it ends with `code`."""
        if (cli.main(["--clusters", str(self.tree), *words], "mm2mgr", standalone_mode=False) or 0) != code:
            raise Mm2mgrError(f"the demo stops: mm2mgr {words[0]} failed")

    def apply(self, workspace: Workspace) -> None:
        """Apply as the command does, but end at the first interrupt: the sandbox is stopped then."""
        say_topology(workspace.flow_matrix)

        def show(plan: Plan) -> bool:
            say_plan(plan)
            return True

        applied = operations.apply(workspace, wait_seconds=60, approve=show, report=say_event)
        say_applied(applied)
        if applied.outcome != "done":
            raise Mm2mgrError("the demo stops: mm2mgr apply failed")

    def traffic(self, flows: tuple[Flow, ...], stack: ExitStack) -> list[Traffic]:
        sources = {flow.source.alias: flow.source for flow in flows}
        running = []
        for index, cluster in enumerate(sources.values()):
            # So far apart that the flows get different tasks even where a busy machine makes the traffic come in
            # bursts.
            scale = 1.0 if index == 0 else 0.25
            running.append(stack.enter_context(Traffic(kafka_access(cluster), scale, self.rates)))
            total = scale * sum(map(sum, self.rates.values()))
            topics = ", ".join(f"{topic} ({len(rates)} partitions)" for topic, rates in self.rates.items())
            talk(f"{cluster.alias}: {topics}, {total:.0f} records/s")
        return running

    def wait_until_caught_up(self, workspace: Workspace) -> None:
        """Compare end offsets: without transactions a remote partition has as many records as its source.

        A slow machine takes as long as it needs; the wait ends, with the status, when no record has arrived for a
        while.
        """
        flows = workspace.topology.flows
        least, deadline = math.inf, timing.now() + _PATIENCE_SECONDS
        while behind := {flow.id: lag for flow in flows if (lag := _records_behind(flow, self.rates)) > 0}:
            left = ", ".join(f"{name} {lag} records" for name, lag in behind.items())
            if sum(behind.values()) < least:
                least, deadline = sum(behind.values()), timing.now() + _PATIENCE_SECONDS
            if timing.now() > deadline:
                say_status(operations.status(workspace))
                message = f"not caught up, and no record has arrived for {_PATIENCE_SECONDS:.0f} s: {left}"
                raise Mm2mgrError(message, hint="mm2mgr demo --keep, then status")
            talk(f"behind: {left}")
            timing.sleep(1.0)
        talk("every flow has caught up")

    def prove(self, workspace: Workspace) -> bool:
        """Audit every record, once the workers have stored the offsets of all of them (every 2 s in the sandbox)."""
        deadline = timing.now() + _STORED_SECONDS
        while left := sum(_records_not_stored(workspace, self.rates)):
            if timing.now() > deadline:
                raise Mm2mgrError(
                    f"the workers have not stored how far they are: {left} records cannot be audited",
                    hint="mm2mgr demo --keep, then offsets show",
                )
            timing.sleep(0.5)
        words = ("audit", self.flow, "--no-spark", "--store", str(self.samples))
        self.step("Proof: every record of the sources is on the target, once and in order", shlex.join(words))
        exact: bool = not cli.main(["--clusters", str(self.tree), *words], "mm2mgr", standalone_mode=False)
        say(
            "Every record arrived exactly once and in order." if exact else "NOT EXACT: see above.",
            style="bold green" if exact else "bold red",
        )
        return exact

    def status(self, workspace: Workspace) -> bool:
        """Print the status, once the workers have flushed their offsets (every 2 s in the sandbox)."""
        deadline = timing.now() + 30
        while (status := operations.status(workspace)).health != "ok" and timing.now() < deadline:
            timing.sleep(1.0)
        say_status(status)
        return status.health == "ok"


class _Story(Story):
    """The whole job: measure, size, plan, apply, prove."""

    steps, flow = 9, "logging"

    def __init__(self, directory: Path, measure_seconds: float) -> None:
        super().__init__(directory, measure_seconds)
        self.rates = RATES

    def run(self, sandbox: Sandbox, stack: ExitStack) -> int:
        self.step("Four Kafka clusters and two Connect workers", "$ mm2mgr sandbox up")
        write_tree(self.tree, sandbox.start(progress=talk))
        workspace = Workspace((self.tree,))
        flows = workspace.topology.flows

        self.step("Uneven traffic on the sources, and it goes on")
        traffic = self.traffic(flows, stack)

        store = ("--store", str(self.samples))
        self.play(
            "Sample end offsets and record sizes", "sample", "--interval", "1s", "--duration", self.measured, *store
        )
        self.play("Throughput per partition, on Spark", "throughput", "--spark", "--top", "8", *store)
        say()
        say("The tables (Delta Lake, any engine reads them):")
        for table in operations.table_sizes(self.samples):
            say(f"  {table.uri}: {number_of(table.rows, 'row')} in {number_of(table.files, 'file')}")
        self.play("Tasks per flow from measured throughput", "size", *store)

        self.step("Plan and apply", "apply --yes")
        workspace = Workspace((self.tree,))  # read again: sizing is part of the tree now
        self.apply(workspace)

        self.step("Stop the traffic and wait until every flow has caught up")
        for writer in traffic:
            writer.stop()
        self.wait_until_caught_up(workspace)

        exact = self.prove(workspace)

        self.step("Plan again, and status", "plan; status")
        plan = operations.plan(workspace)
        say_plan(plan)
        healthy = self.status(workspace)
        return 0 if exact and healthy and plan.is_empty and not plan.has_failed else 1


def partitions_of(rates: Mapping[str, tuple[int, ...]]) -> list[TopicPartition]:
    """Return the partitions that get traffic."""
    return [TopicPartition(topic, number) for topic, of_topic in rates.items() for number in range(len(of_topic))]


def _records_behind(flow: Flow, rates: Mapping[str, tuple[int, ...]]) -> int:
    partitions = partitions_of(rates)
    with Kafka(kafka_access(flow.source)) as source, Kafka(kafka_access(flow.target)) as target:
        ends = source.offsets(partitions)
        remote = target.offsets(TopicPartition(flow.remote_topic(p.topic), p.partition) for p in partitions)
    return sum(
        offsets.end
        - (there.end if (there := remote.get(TopicPartition(flow.remote_topic(p.topic), p.partition))) else 0)
        for p, offsets in ends.items()
    )


def _records_not_stored(workspace: Workspace, rates: Mapping[str, tuple[int, ...]]) -> Iterator[int]:
    for flow in operations.offsets(workspace, operations.Choice(everything=True)):
        yield from [1] if flow.unknown else []
        own = (partition for partition in flow.lag.counted_partitions if partition.partition.topic in rates)
        yield from (partition.stored_lag_records for partition in own)


# --- the folder -------------------------------------------------------------------------------------------------------


@contextmanager
def demo_folder(directory: Path) -> Iterator[None]:
    """Hold the folder for one demo, without the tree and samples of the demo before."""
    if is_claimed(directory, _USE):
        _refuse_others(directory)  # before the marker is set, and again as the only demo here
    with writing(directory):
        claim(directory, _USE)
    with only_one(directory, "running the demo"):
        _refuse_others(directory)
        for old in ("clusters", "samples"):
            shutil.rmtree(directory / old, ignore_errors=True)
        yield


def _refuse_others(directory: Path) -> None:
    with writing(directory):
        strange = [*_strange_in_tree(directory / "clusters"), *_strange_in_samples(directory / "samples")]
    if strange:
        named = few([str(path) for path in strange])
        problem = f"the demo would remove {named}, which no demo left like that; nothing was touched"
        hint = "move what you want to keep away and delete the rest, or name another folder: --dir DIR"
        raise SandboxError(problem, hint=hint)


def _strange_in_tree(tree: Path) -> list[Path]:
    """Return the files that neither the demo nor its `size` wrote, or that were changed since."""

    def is_ours(path: Path) -> bool:
        name = path.relative_to(tree).as_posix()
        if name == "overrides/sizing.yaml":
            return SIZING.wrote(path)
        return name in {"clusters.yaml", "flows.yaml"} and as_written(path)

    return sorted(path for path in tree.rglob("*") if path.is_file() and not is_ours(path))


def _strange_in_samples(samples: Path) -> list[Path]:
    """Return what is no part of a store, and whatever is of an hour where there are more hours than a demo takes."""
    entries = sorted(samples.iterdir()) if samples.is_dir() else []
    strange = [path for path in entries if path.name not in _STORE]
    timed = [(table, first) for table, (first, *_) in PARTITIONED_BY.items() if first not in ("owner", "day")]
    by_hour = [path for table, first in timed for path in samples.glob(f"{table}/{first}=*")]
    hours = {path.name.partition("=")[2] for path in by_hour}
    return strange + (sorted(by_hour) if len(hours) > _HOURS else [])


# --- records ----------------------------------------------------------------------------------------------------------


RECORD_BYTES = 2_000
# Records per second of each partition: app.orders-0 is the hot one.
RATES: Mapping[str, tuple[int, ...]] = {
    "app.orders": (200, 20, 20, 20, 20, 20),
    "app.clicks": (60, 60, 10, 10),
    "audit.log": (5, 40),
}
GROUP = "billing"
_TICK_SECONDS = 0.2


@dataclass
class Traffic:
    """Produces to one cluster in a thread of its own, `rates` by topic in records per second of each partition; `scale`
    multiplies them. Use it in a `with` block."""

    access: KafkaAccess
    scale: float = 1.0
    rates: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: RATES)
    sent: dict[TopicPartition, int] = field(default_factory=dict)
    error: Mm2mgrError | None = None

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"traffic-{self.access.alias}", daemon=True)
        self._rates = {
            TopicPartition(topic, number): rate * self.scale
            for topic, rates in self.rates.items()
            for number, rate in enumerate(rates)
        }

    def __enter__(self) -> Traffic:
        with Kafka(self.access, timeout_seconds=20) as kafka:
            kafka.create_topics({topic: (len(rates), 1, {}) for topic, rates in self.rates.items()})
            # A second run on a kept sandbox goes on counting where the first one ended.
            self.sent.update(_ends(kafka, list(self._rates)))
        # A group that has read up to here: checkpoints translate its offsets for the target.
        commit_group(self.access, GROUP, self.sent)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is None and self.error:
            raise self.error

    def stop(self) -> None:
        """Stop producing; on return every record sent is stored on the source."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            with Producer(self.access) as producer:
                owed = dict.fromkeys(self._rates, 0.0)
                last = timing.now()
                while not timing.wait(self._stop, _TICK_SECONDS):
                    now = timing.now()
                    for partition, rate in self._rates.items():
                        owed[partition] += rate * (now - last)
                        for _ in range(int(owed[partition])):
                            self._send(producer, partition)
                        owed[partition] %= 1
                    last = now
        except Mm2mgrError as error:
            self.error = error

    def _send(self, producer: Producer, partition: TopicPartition) -> None:
        number = self.sent[partition]
        name = f"{self.access.alias}/{partition.topic}-{partition.partition}#{number}".encode()
        producer.send(partition, name + b" " + os.urandom(RECORD_BYTES - len(name) - 1), key=name)
        self.sent[partition] = number + 1


def _ends(kafka: Kafka, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end of each partition; a topic just created answers only after its leader has settled in."""
    deadline = timing.now() + 20
    while True:
        read = kafka.read_offsets(partitions)
        if not read.failed:
            return {partition: offsets.end for partition, offsets in read.found.items()}
        if timing.now() > deadline:
            partition, reason = next(iter(read.failed.items()))
            raise KafkaError(f"{kafka.access.alias}: {partition.topic}-{partition.partition} cannot be read: {reason}")
        timing.sleep(0.1)
