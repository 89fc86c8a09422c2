"""Two `serve --with rebalance` of one owner, in processes of their own, on one real lease: one writes a rebalance, the other stands by,
and takes over when the first is killed in the middle. Workers that rebalance, and answer 409, make neither write twice or by half.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from httpx import Client, HTTPError

from mm2mgr.assignment import ASSIGNED_KEY, Assignment, parse_assigned, spread
from mm2mgr.assignment_text import ASSIGNMENT_KEY
from mm2mgr.operations import write_plugin
from mm2mgr.partitions import TopicPartition
from tests.cli.load import measured

from .command import Tree
from .conftest import WORKER
from .gateway import Gateway
from .pair import Pair, flow, serving_pair
from .record_ids import prove, read_ids
from .seen import config_of, create, task_configs, until
from .traffic import Entry, producing

pytestmark = [pytest.mark.live, pytest.mark.matrix]
NAME = "mm2.src.tgt.source.even"
ALL = [TopicPartition(f"t{topic}", number) for topic in range(3) for number in range(4)]
MORE = ", tasks: {max: 4, capacity: 100kB/s}, balance: {by: plugin, automatic: [schedule], looks: 1, rounds_per_day: 9, cool_down: 1s}"
HOUR_MS = 3_600_000


def heavy_in(number: int) -> dict[TopicPartition, float]:
    """Return rates of which nine tenths are of the partitions with this number."""
    return {partition: 18_000.0 if partition.partition == number else 1_000.0 for partition in ALL}


def store_of(folder: Path, number: int) -> str:
    rates = {("src", *partition): rate for partition, rate in heavy_in(number).items()}
    return str(measured(folder, *[rates] * 3, end_ms=time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS))


class Server:
    """A server that runs, as its API shows it."""

    def __init__(self, pid: int, url: str) -> None:
        self.pid = pid
        self._client = Client(base_url=url, trust_env=False, timeout=20)

    def looked(self) -> dict[str, Any]:
        with suppress(HTTPError):
            answer = self._client.get("/api/rebalance")
            if answer.status_code == 200:
                return dict(answer.json())
        return {"flows": [], "done": []}

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


@contextmanager
def serving(tree: Tree, store: str, *arguments: str) -> Iterator[Server]:
    given = ("--with", "rebalance", "--every", "2s", "--survey-every", "10s", "--store", store, *arguments)
    with tree.serve(*given) as (running, url):
        yield Server(running.pid, url)


class Writes:
    """What the gateway saw of writes to the connector's config. `busy`: such writes are refused, as by workers that rebalance."""

    def __init__(self, gateway: Gateway) -> None:
        self.busy, self.refused, self.done = False, 0, 0
        gateway.is_busy, gateway.after = self._is_busy, self._after

    def _is_busy(self, method: str, path: str) -> bool:
        is_refused = self.busy and method == "PUT" and path.endswith("/config")
        self.refused += is_refused
        return is_refused

    def _after(self, _name: str, config: dict[str, str] | None) -> None:
        self.done += config is not None


@dataclass
class Site:
    """A connector with the plugin behind a gateway, and the trees of two servers of its owner."""

    pair: Pair
    folder: Path
    trees: tuple[Tree, Tree]
    writes: Writes

    @property
    def config(self) -> dict[str, str]:
        return config_of(self.pair.url, NAME)

    def becomes_even(self, number: int) -> None:
        """Wait until the tasks that run share the load that is heavy in the partitions with this number."""

        def spread_now() -> float:
            tasks = Assignment(tuple(parse_assigned(task[ASSIGNED_KEY]) for task in task_configs(self.pair.url, NAME)))
            return spread(tasks.loads(heavy_in(number))) if len(tasks.tasks) == 4 else 9.0

        until(spread_now, lambda found: found < 1.4, "not even")

    def rebalances(self) -> list[str]:
        """Return the outcomes of the rebalances in the history, oldest first."""
        entries = [entry for entry in self.trees[0].json("history")["entries"] if entry["command"] == "rebalance"]
        return [entry["outcome"] for entry in sorted(entries, key=lambda entry: str(entry["when"]))]

    def one_writes(self) -> None:
        """Both are due at once while the workers rebalance: the round is held, tried again, and written once."""
        stored, writes = store_of(self.folder / "one", 0), self.writes
        writes.busy = True
        with serving(self.trees[0], stored) as first, serving(self.trees[1], stored) as second:
            both = (first, second)
            until(lambda: writes.refused, lambda count: count > 1, "no write is tried")
            until(lambda: [server.looked()["flows"] for server in both], any, "the other did not look meanwhile")
            assert (writes.done, ASSIGNMENT_KEY in self.config) == (0, False)
            writes.busy = False
            done = until(lambda: [server.looked()["done"] for server in both], any, "nothing was rebalanced", 240)
            self.becomes_even(0)
            other = both[0 if done[1] else 1]
            flows = until(lambda: other.looked()["flows"], bool, "the other did not look")
            print("the other:", flows[0]["outcome"], flows[0]["detail"], flows[0]["decision"])
            assert [len(other.looked()["done"]), *sorted(map(len, done))] == [0, 0, 1]
            for server in both:
                server.kill()
        assert (writes.done, self.rebalances()) == (1, ["done"])

    def what_is_refused_for_long_is_no_round(self) -> None:
        """The workers rebalance for longer than a write may take: nothing is written, and it counts for nothing."""
        before, self.writes.busy = self.config, True
        with serving(self.trees[0], store_of(self.folder / "two", 1)) as first:
            (failed,) = until(lambda: first.looked()["done"], bool, "no write was given up", 240)
            print("given up:", failed["outcome"], failed["detail"])
            assert (failed["outcome"], "409" in failed["detail"]) == ("failed", True)
            first.kill()
        assert (self.config, self.rebalances()) == (before, ["done", "failed"])

    def one_takes_over(self) -> None:
        """The first is killed while it holds the lease and tries to write; the other, which runs beside it, goes on."""
        stored, freeze, writes = str(self.folder / "two"), self.folder / "freeze", self.writes
        freeze.touch()
        held, writes.busy = ("--freeze-file", str(freeze)), True
        with serving(self.trees[0], stored) as first, serving(self.trees[1], stored, *held) as second:
            refused = writes.refused
            until(lambda: second.looked()["flows"], bool, "the second did not look")
            until(lambda: writes.refused, lambda count: count > refused, "the first does not write")
            first.kill()
            killed, writes.busy = time.monotonic(), False
            freeze.unlink()
            (done,) = until(lambda: second.looked()["done"], bool, "the second did not take over", 240)
            print(f"taken over and done {time.monotonic() - killed:.0f} s after the kill: {done['outcome']}")
            self.becomes_even(1)
            second.kill()
        assert (writes.done, self.rebalances()) == (2, ["done", "failed", "begun", "done"])
        self.trees[1].run("plan", "--detailed-exitcode")

    def complete(self) -> None:
        """Wait until all records that were sent are on the target."""
        source = read_ids(self.pair.source, ALL)
        remote = [TopicPartition(f"src.{partition.topic}", partition.partition) for partition in ALL]
        proofs = until(
            lambda: prove(source, read_ids(self.pair.target, remote), "src."),
            lambda proofs: not any(proof.missing for proof in proofs),
            "records are missing",
        )
        total, twice = sum(proof.records for proof in proofs), sum(proof.duplicated for proof in proofs)
        print(f"{total} records, none lost, {twice} twice")
        assert not any(proof.unexpected for proof in proofs)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    write_plugin(tmp_path / "plugins" / "mm2mgr")
    settings = {**WORKER, "plugin.path": str(tmp_path / "plugins")}
    with serving_pair(tmp_path, workers=("first",), settings=settings) as pair, Gateway(pair.url) as gateway:
        create(pair.source, sorted({partition.topic for partition in ALL}), 4)
        quiet, more = "checkpoints: false, heartbeats: false, ", ", workers: {count: 1}, timeout: 20s"
        text = pair.yaml("even", flow("even", '"t[0-9]"', MORE), quiet, workers=more).replace(pair.url, gateway.url)
        first, second = (Tree(tmp_path / name / "clusters") for name in ("first-tree", "second-tree"))
        for tree in (first, second):
            tree.write(text)
        first.run("apply", "--yes")
        until(lambda: len(task_configs(pair.url, NAME)), lambda count: count == 4, "no four tasks")
        yield Site(pair, tmp_path, (first, second), Writes(gateway))


def test_one_of_two_servers_writes_and_the_other_takes_over_when_it_is_killed(site: Site) -> None:
    ids = itertools.count()

    def entries() -> Iterator[Entry]:
        for partition in ALL:
            id_ = b"%d" % next(ids)
            yield partition, b"value " + id_, id_

    with producing(site.pair.source, entries, 0.1):
        site.one_writes()
        site.what_is_refused_for_long_is_no_round()
        site.one_takes_over()
    site.complete()
