"""The steps of `mm2mgr demo --balance`: skewed traffic overloads one of four tasks, a rebalance makes them even, and an
audit proves that nothing was lost.

A quota of each task's consumer is the capacity of a task, so that one is really overloaded while the machine is not.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mm2mgr import operations, timing
from mm2mgr.assignment import Assignment, spread
from mm2mgr.demo.story import Story, demo_folder, partitions_of, play_story
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.quotas import CONSUMER_RATE_KEY, QuotaEntity, write_quotas
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.operations import LagOptions, Workspace
from mm2mgr.output.console import say, talk
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.folder import write_tree
from mm2mgr.sandbox.layout import Layout, Sandbox
from mm2mgr.sandbox.process import spawn
from mm2mgr.text import rate_text, span_text
from mm2mgr.topology import Flow

_LAYOUT = Layout(("dc1-logging",), ("agg-east",), {"east": "agg-east"})
_TASKS, _CAPACITY, _MAX_LAG_SECONDS, _LEVEL_SECONDS = 4, 300_000, 5, 1
# Records per second of each partition. All topics are keyed alike, so a busy key is in the same partition of each, and
# Connect, which assigns in turn, gives these to one task: 180 of 300 records per second, 2.4 times the mean.
_RATES = dict.fromkeys(("app.orders", "app.clicks", "app.carts"), (40, 6, 8, 6, 20, 6, 8, 6))
_FLOWS = f"""\
flows:
  events:
    sources: {{tier: local}}
    targets: {{tier: aggregate}}
    topics: {{include: ["app[.].*"]}}
    # What one task may read here, by a quota of its consumer; the default of a tree is 10 MB/s.
    tasks: {{max: {_TASKS}, capacity: {_CAPACITY // 1000} kB/s, threshold: 70%}}
    balance: {{by: plugin, automatic: [overload]}}  # not by schedule, which would not wait for a lag
    max_lag: {_MAX_LAG_SECONDS}s
    refresh_interval: 5s
    source_consumer: {{fetch.max.bytes: 65536}}
    checkpoints: false
    heartbeats: false
"""
_EVEN, _LOOKS = 1.1, 3
_SETTLED_SECONDS, _LOOK_SECONDS, _COUNTED_SECONDS = 90.0, 1.0, 10.0


def run_balance_demo(directory: Path, *, keep: bool, measure_seconds: float) -> int:
    """Run it; return 0 only when a task was overloaded and late, tasks are even and on time afterwards, and the proof
    holds."""
    with demo_folder(directory):
        plugins = directory / "plugins"
        operations.write_plugin(plugins / "mm2mgr")
        sandbox = Sandbox(directory / "sandbox", plugins=plugins)
        return play_story(_BalanceStory(directory, measure_seconds), sandbox, keep=keep)


class _BalanceStory(Story):
    steps, flow, rates = 9, "events", _RATES

    def run(self, sandbox: Sandbox, stack: ExitStack) -> int:
        self.step("Two Kafka clusters, and a Connect worker with mm2mgr's plugin", "$ mm2mgr plugin write DIR")
        write_tree(self.tree, sandbox.start(_LAYOUT, progress=talk), _FLOWS)
        workspace = Workspace((self.tree,))
        (flow,) = workspace.topology.flows

        self.step("Skewed traffic: a busy key is in the same partition of each topic")
        traffic = self.traffic(workspace.topology.flows, stack)
        _limit_tasks(flow)
        talk(f"each of {_TASKS} tasks may read {rate_text(_CAPACITY)}: a quota of its consumer")

        self.step("Plan and apply: tasks begin as Connect assigns partitions, in turn", "apply --yes")
        self.apply(workspace)

        store = ("--store", str(self.samples))
        self.step("Sample, and roll up", f"sample --follow; throughput  # after {self.measured}")
        stack.enter_context(self.run_beside("sample", "--interval", "1s", "--duration", "10min", *store))
        timing.sleep(self.measure_seconds)
        self.command(0, "throughput", "--no-spark", "--top", "4", *store)

        self.play("A task is over its capacity", "rebalance", *store, code=2)
        self.step(f"So it falls behind, until it is later than max_lag: {_MAX_LAG_SECONDS} s", "lag --by task")
        late = self.wait_for_lag(workspace, above=_MAX_LAG_SECONDS)
        self.command(0, "lag", "--by", "task", *store)
        before = self.say_loads(flow, late)

        words = ("serve", "--with", "rebalance", "--every", "2s", *store)
        self.step("serve rebalances where a task is overloaded and later than max_lag in two looks", shlex.join(words))
        stack.enter_context(self.run_beside(*words, "--survey-every", "10s", "--listen", "127.0.0.1:0"))
        self.wait_for_round(workspace)
        even = self.wait_for_lag(workspace, below=_LEVEL_SECONDS)

        self.step("Level: even tasks, and no lag", "lag --by task")
        self.command(0, "lag", "--by", "task", *store)
        after = self.say_loads(flow, even)
        say(f"Busiest task by the mean: {before:.2f} before, {after:.2f} now.", style="bold")

        say("The traffic ends.")
        for writer in traffic:
            writer.stop()
        self.wait_until_caught_up(workspace)
        exact = self.prove(workspace)
        if after > _EVEN:
            say(f"NOT EVEN: the busiest task has {after:.2f} times the mean.", style="bold red")
        return 0 if exact and after <= _EVEN < before else 1

    @contextmanager
    def run_beside(self, *words: str) -> Iterator[None]:
        """Run a command beside the story until its end; what it prints goes into a file of the folder."""
        command = [sys.executable, "-m", "mm2mgr", "--clusters", str(self.tree), *words]
        process = spawn(command, self.directory / f"{words[0]}.log", os.environ)
        try:
            yield
        finally:
            process.stop()

    def wait_for_round(self, workspace: Workspace) -> None:
        """Wait until the history has a rebalance, and show it."""
        deadline = timing.now() + _SETTLED_SECONDS
        while True:
            entries = operations.history(workspace, last=1).entries
            if any(entry.command == "rebalance" and entry.outcome == "done" for entry in entries):
                break
            if timing.now() > deadline:
                raise Mm2mgrError("the demo stops: serve rebalanced nothing", hint="mm2mgr demo --balance --keep")
            timing.sleep(_LOOK_SECONDS)
        say("$ mm2mgr history --last 1", style="dim")
        self.command(0, "history", "--last", "1")

    def wait_for_lag(self, workspace: Workspace, *, above: float = -1.0, below: float = float("inf")) -> Assignment:
        """Wait until the oldest record that waits has this age, in seconds, in some looks; return the assignment."""
        deadline, looks = timing.now() + _SETTLED_SECONDS, 0
        while True:
            (facts,) = operations.lag(workspace, options=LagOptions(store=self.samples)).flows
            seconds = facts.total.seconds.value
            is_so = seconds is not None and not facts.lag.unknown and above < seconds < below
            looks = looks + 1 if is_so else 0
            if looks == _LOOKS:
                return facts.lag.assignment
            if timing.now() > deadline:
                age = "unknown" if seconds is None else f"{span_text(seconds)}"
                raise Mm2mgrError(f"the demo stops: the lag is {age}", hint="mm2mgr demo --balance --keep, then lag")
            timing.sleep(_LOOK_SECONDS)

    def say_loads(self, flow: Flow, tasks: Assignment) -> float:
        """Count for some seconds what each task mirrors, and print it; return the busiest one's by the mean."""
        first, begun = _read_arrived(flow), timing.now()
        timing.sleep(_COUNTED_SECONDS)
        last, took = _read_arrived(flow), timing.now() - begun
        loads = tasks.loads({partition: (last[partition] - first[partition]) / took for partition in last})
        say(f"records/s that arrive by task: {', '.join(f'{load:.0f}' for load in loads)}")
        return spread(loads)


def _limit_tasks(flow: Flow) -> None:
    client = f"{flow.source.alias}->{flow.target.alias}|{flow.connector_name('source')}"
    tasks = [QuotaEntity(f"{client}-{task}|replication-consumer") for task in range(_TASKS)]
    refused = write_quotas(kafka_access(flow.source), dict.fromkeys(tasks, _CAPACITY), rate_key=CONSUMER_RATE_KEY)
    if refused:
        raise Mm2mgrError(f"a quota was refused: {next(iter(refused.values()))}")


def _read_arrived(flow: Flow) -> dict[TopicPartition, float]:
    remote = {TopicPartition(flow.remote_topic(p.topic), p.partition): p for p in partitions_of(_RATES)}
    with Kafka(kafka_access(flow.target)) as target:
        return {remote[there]: float(offsets.end) for there, offsets in target.offsets(remote).items()}
