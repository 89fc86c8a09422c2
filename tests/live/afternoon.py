"""An estate that is changed all afternoon while records with ids keep coming: who has which of them after each step.

In: hand-made connectors, flows as YAML, topics. Out: for each step how many records arrived once, twice or not at all, and what `status` said.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self
from urllib.error import HTTPError

from mm2mgr.comparison.ownership import JOURNAL_KEY
from mm2mgr.kafka.records import Producer

from .command import Tree
from .days import PARTITIONS, Day, World
from .gateway import Gateway
from .seen import connector_url, rest, statuses, until

_PAUSE_SECONDS = 0.2
_ARRIVAL_SECONDS = 180.0


@dataclass(frozen=True)
class Stream:
    """Records that keep coming into a topic, and the names under which they arrive."""

    topic: str
    remotes: tuple[str, ...]
    source: str = "dc1"
    target: str = "agg"


@dataclass(frozen=True)
class Count:
    """Of `sent` records, how many arrived once, more than once, and not at all."""

    sent: int
    once: int
    twice: int
    lost: int

    def __str__(self) -> str:
        waiting = self.sent - self.once - self.twice - self.lost
        rest = f", {waiting} wait for a flow that is paused or failed" if waiting > 0 else ""
        return f"{self.sent} records: {self.once} once, {self.twice} twice, {self.lost} lost{rest}"

    def __add__(self, other: Count) -> Count:
        return Count(self.sent + other.sent, self.once + other.once, self.twice + other.twice, self.lost + other.lost)


class Records:
    """Sends records with ids to every topic of `streams` without pause, from its own thread, until the `with` block ends."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ended = threading.Event()
        self._errors: list[Exception] = []
        self._thread = threading.Thread(target=self._run, name="records", daemon=True)
        self.streams: tuple[Stream, ...] = ()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(90)
        assert not self._errors, self._errors

    def _run(self) -> None:
        world = self._world
        try:
            with ExitStack() as stack:
                producers = {
                    name: stack.enter_context(Producer(access, timeout_seconds=60))
                    for name, access in world.kafkas.items()
                }
                while not self._ended.wait(_PAUSE_SECONDS):
                    for stream, number in itertools.product(self.streams, range(PARTITIONS)):
                        value = f"{stream.source}/{stream.topic}/{next(world.ids)}".encode()
                        producers[stream.source].send((stream.topic, number), value)
        except Exception as error:
            self._errors.append(error)


@dataclass
class Afternoon:
    """The tree, its flows by name and the entries of `adopt:`, the streams that are counted, and the summary."""

    world: World
    day: Day
    records: Records
    flows: dict[str, str] = field(default_factory=dict)
    adopted: dict[str, str] = field(default_factory=dict)
    """Entries of `adopt:` by flow"""
    resting: set[Stream] = field(default_factory=set)
    """Streams whose flow is paused or failed: what was sent need not have arrived"""
    streams_of: dict[str, list[Stream]] = field(default_factory=dict)
    """Those that the flows of the estate carry from the beginning, by flow"""
    defaults: str = ""

    # The tree

    def write(self, *, moved: Iterable[str] = (), release: Iterable[str] = (), tree: Tree | None = None) -> None:
        """Write the tree as it is declared now, into another folder if one is given."""
        day = Day(self.world, tree or self.day.tree, self.day.owner)
        day.declare({name: name for name in self.world.kafkas}, "".join(self.flows.values()), self.defaults)
        entries = {"adopt": self.adopted.values(), "moved": moved, "release": release}
        file = day.tree.folder / "tree.yaml"
        lines = [
            f"{key}:\n" + "".join(f"  - {entry}\n" for entry in texts) for key, texts in entries.items() if [*texts]
        ]
        file.write_text(file.read_text() + "".join(lines))

    def apply(self, *arguments: str, code: int = 0, moved: Iterable[str] = (), release: Iterable[str] = ()) -> str:
        """Write the tree and apply it; without arguments it does not wait for tasks."""
        self.write(moved=moved, release=release)
        return self.day.tree.run("apply", "--yes", *(arguments or ("--wait", "0")), code=code)

    def apply_and_kill(self, is_moment: Callable[[int, bool], bool]) -> bool:
        """Apply the tree that is written, and kill mm2mgr right after a write; return whether it was killed.

        `is_moment` gets the number of writes so far, and whether this one changed a journal.
        """
        tree, world = self.day.tree, self.world
        file = tree.folder / "tree.yaml"
        text = file.read_text()
        journals = {(connect, name): config.get(JOURNAL_KEY) for (connect, name), config in world.configs().items()}
        writes, is_killed = itertools.count(1), threading.Event()
        with ExitStack() as stack:
            gateways = {name: stack.enter_context(Gateway(worker.url)) for name, worker in world.workers.items()}
            for name, gateway in gateways.items():
                text = text.replace(world.workers[name].url, gateway.url)
            file.write_text(text)
            running = stack.enter_context(tree.start("apply", "--yes", "--wait", "0"))

            def after(connect: str, name: str, config: dict[str, str] | None) -> None:
                journal = journals.get((connect, name)) if config is None else config.get(JOURNAL_KEY)
                is_changed, journals[connect, name] = journal != journals.get((connect, name)), journal
                if is_moment(next(writes), is_changed) and not is_killed.is_set():
                    is_killed.set()
                    running.kill()

            for name, gateway in gateways.items():
                gateway.after = partial(after, name)
            out, err = running.communicate(timeout=180)
        assert is_killed.is_set() or running.returncode == 0, out + err
        return is_killed.is_set()

    # Records

    def expect(self, *streams: Stream) -> None:
        """Create the topics of these streams, and send records from now on."""
        for stream in streams:
            self.world.create(stream.source, stream.topic)
            self.world.produce(stream.source, stream.topic)
        self.records.streams += streams

    def forget(self, streams: Collection[Stream]) -> None:
        """Send no more records to these streams, and do not count them."""
        self.records.streams = tuple(stream for stream in self.records.streams if stream not in streams)

    def arrived(self, stream: Stream) -> Counter[bytes]:
        return sum((self.world.held(stream.target, remote) for remote in stream.remotes), Counter[bytes]())

    def wait_for_more(self, stream: Stream, count: int = 20, seconds: float = 180.0) -> None:
        """Wait until so many more records have arrived."""
        before = self.arrived(stream).total()
        until(lambda: self.arrived(stream).total() - before, lambda more: more >= count, f"{stream}", seconds)

    def count(self, streams: Iterable[Stream], seconds: float = _ARRIVAL_SECONDS) -> dict[Stream, Count]:
        """Count what was sent until now, after a while in which it may arrive."""
        sent = {stream: self.world.held(stream.source, stream.topic) for stream in streams}
        deadline = time.monotonic() + seconds
        while True:
            arrived = {stream: self.arrived(stream) for stream in sent}
            lost = {stream: ids - arrived[stream] for stream, ids in sent.items() if stream not in self.resting}
            if not any(lost.values()) or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        counts = {}
        for stream, ids in sent.items():
            twice = sum(number > ids.get(id_, 1) for id_, number in arrived[stream].items())
            once = sum(arrived[stream][id_] == 1 for id_ in ids)
            counts[stream] = Count(len(ids), once, twice, lost.get(stream, Counter()).total())
        return counts

    # Connect

    def snapshot(self) -> dict[tuple[str, str], Any]:
        """Return config, states and stored offsets of every connector."""
        states = {connect: statuses(worker.url) for connect, worker in self.world.workers.items()}

        def offsets(connect: str, name: str) -> list[str]:
            entries = rest("GET", connector_url(self.world.workers[connect].url, name, "/offsets"))["offsets"]
            return sorted(json.dumps(entry, sort_keys=True) for entry in entries)

        return {
            (connect, name): (config, states[connect].get(name), offsets(connect, name))
            for (connect, name), config in self.world.configs().items()
        }

    def set_state(self, connect: str, name: str, verb: str) -> None:
        """Pause, resume or stop a connector as a person with curl would."""
        rest("PUT", connector_url(self.world.workers[connect].url, name, f"/{verb}"))

    def delete(self, *names: tuple[str, str]) -> None:
        """Stop and delete connectors over REST."""
        for connect, name in names:
            with suppress(HTTPError):
                self.set_state(connect, name, "stop")
        for connect, name in names:
            url = connector_url(self.world.workers[connect].url, name)
            with suppress(HTTPError, AssertionError):
                until(lambda url=url: rest("GET", f"{url}/status")["tasks"], lambda tasks: not tasks, seconds=20)  # type: ignore[misc]
            with suppress(HTTPError):
                rest("DELETE", url)
        until(lambda: set(names) & self.world.configs().keys(), lambda left: not left, "not deleted")

    def give_up(self, flows: Collection[str], streams: Collection[Stream]) -> None:
        """Take what a failed step leaves out of the tree and off the workers, so that the next step begins well."""
        self.forget(streams)
        for name in flows:
            self.flows.pop(name, None)
            self.adopted.pop(name, None)
        topics = [stream.topic for stream in streams]
        self.delete(
            *(
                named
                for named, config in self.world.configs().items()
                if any(re.fullmatch(regex, topic) for regex in config.get("topics", "").split(",") for topic in topics)
            )
        )

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.day.tree.json("status")
        return status


@dataclass
class Step:
    """One step: its own flows and streams, which go with it when it fails, and what the summary says of it."""

    title: str
    afternoon: Afternoon
    flows: set[str] = field(default_factory=set)
    streams: list[Stream] = field(default_factory=list)
    summary: list[str] = field(default_factory=list)
    is_good: bool = False

    def declare(self, **flows: str | None) -> None:
        """Declare flows of this step, or take them out (None)."""
        for key, text in flows.items():
            name = key.replace("_", "-")
            self.flows.add(name)
            self.afternoon.flows.pop(name, None)
            if text is not None:
                self.afternoon.flows[name] = text

    def stream(self, topic: str, source: str = "dc1", target: str = "agg") -> Stream:
        """Begin to send records to a new topic."""
        stream = Stream(topic, (f"{source}.{topic}",), source, target)
        self.afternoon.expect(stream)
        self.streams.append(stream)
        return stream

    def takes(self, *flows: str) -> list[Stream]:
        """Make flows of the estate, and the streams through them, part of this step."""
        gone = [flow for flow in flows if flow not in self.afternoon.flows]
        assert not gone, f"{gone} went with a step that failed"
        self.flows |= set(flows)
        own = [stream for flow in flows for stream in self.afternoon.streams_of[flow]]
        self.streams += own
        return own

    def look(self) -> dict[str, Any]:
        """Ask for the status, and note the problems of this step's flows."""
        status = self.afternoon.status()
        self.summary.append(f"status: {', '.join(problems(status)) or 'ok'}")
        return status

    def counted(self) -> None:
        """Count all records of the afternoon: each arrived once; `status` names nothing but flows that are paused or failed."""
        counts = self.afternoon.count(self.afternoon.records.streams)
        self.summary.insert(0, str(sum(counts.values(), Count(0, 0, 0, 0))))
        wrong = {stream.topic: str(count) for stream, count in counts.items() if count.twice or count.lost}
        assert not wrong, f"{self.title}: {wrong}"
        self.judge(self.look())
        self.is_good = True

    def judge(self, status: dict[str, Any]) -> None:
        """Fail where a status names what is well."""
        resting = {flow for flow, streams in self.afternoon.streams_of.items() if self.afternoon.resting & {*streams}}
        wrong = {name: kinds for name, kinds in problems(status).items() if name not in resting}
        assert not wrong, f"{self.title}: status names {wrong}"


def problems(status: dict[str, Any]) -> dict[str, list[str]]:
    """Return the kinds of problems by flow; those of none by their subject."""
    kinds: dict[str, list[str]] = {}
    for problem in status["problem_values"]:
        subject = problem["subject"]
        name = subject["flow"].partition(":")[0] or subject["connector"] or subject["connect"]
        kinds.setdefault(name, []).append(problem["kind"])
    return kinds


@contextmanager
def step_of(afternoon: Afternoon, title: str) -> Iterator[Step]:
    """Yield a step; when it fails, count what its streams show, and take it off the estate."""
    step = Step(title, afternoon)
    yield step
    if not step.is_good:
        counts = afternoon.count(step.streams, seconds=15)
        step.summary.insert(0, f"FAILED; {sum(counts.values(), Count(0, 0, 0, 0))}")
        afternoon.give_up(step.flows, step.streams)
