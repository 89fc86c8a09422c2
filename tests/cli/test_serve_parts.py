"""`serve --with`: the parts that stay, each as its own command, with one lease each, and how they end."""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mm2mgr import timing
from mm2mgr.json_values import to_json
from mm2mgr.kafka import lease
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.operations import PlanOptions, ReconcileOrder, ReconcileRound, Workspace
from mm2mgr.operations.sample import SampleOrder
from mm2mgr.operations.serve import EstateWatch
from mm2mgr.operations.serve_parts import ReconcilesOrder, SamplesOrder, ServeOrder
from mm2mgr.render import OWNER_KEY
from mm2mgr.samples.store import SampleStore
from tests.plan.site import FLOWS, ON_EAST, Site
from tests.serve.estate import SURVEY, look_of

from .command import DEADLINE_SECONDS, Command, allowed_seconds, impatient_mm2mgr, until
from .leases import FakeLease
from .load import one_flow
from .test_serve import get, server

SOURCE = "mm2.a.east.source.orders"
Serving = Callable[..., EstateWatch]


# --- what is typed ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("--watchdog", "Error: --watchdog is gone; write --with watch\n"),
        ("--with watch,size", "names 'size', which is none of watch, reconcile, sample, throughput, audit, rebalance"),
        ("--with watch,", "names '', which is none of"),
        ("--prune", "--prune needs --with reconcile"),
        ("--with watch --keep 90d", "--keep needs --with sample"),
        ("--with sample --first-wait 0s", "--first-wait needs --with watch"),
        ("--with failover --no-spark", "--spark needs --with sample or --with throughput or --with audit"),
        ("--with reconcile --freeze-file f", "--freeze-file needs --with watch or --with rebalance"),
        ("--with reconcile,rebalance --report-only", "--with rebalance writes, and --report-only does not"),
        ("--with watch,reconcile --dry-run", "--dry-run holds back one, --report-only the other; write both or none"),
        ("--with reconcile --flow nowhere", "nowhere"),
        ("--with sample --cluster b", "no flow reads from b"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_asked(
    mm2mgr: Command, site: Site, arguments: str, wanted: str
) -> None:
    code = 1 if "nowhere" in arguments or "--cluster" in arguments else 64
    assert wanted in mm2mgr("serve", *arguments.split(), code=code).err
    assert site.east.requests == []


def test_the_help_says_which_part_an_option_is_for(mm2mgr: Command) -> None:
    said = re.sub(r"\s+", " ", mm2mgr("serve", "--help").out)
    assert "--prune With reconcile: Also delete owned connectors" in said
    assert "With watch, reconcile, rebalance: Why; kept in the history" in said
    assert "With reconcile: Also" not in re.sub(r"\s+", " ", mm2mgr("reconcile", "--help").out)


# --- reconcile --------------------------------------------------------------------------------------------------------


@pytest.fixture
def leases(site: Site, monkeypatch: pytest.MonkeyPatch, closed_port: int) -> Iterator[type[FakeLease]]:
    monkeypatch.setattr(lease, "Lease", FakeLease)
    site.brokers |= {"east": f"127.0.0.1:{closed_port}", "west": f"127.0.0.2:{closed_port}"}
    site.declare()
    yield FakeLease
    FakeLease.forget()


@pytest.fixture
def serving(leases: type[FakeLease]) -> Iterator[Serving]:
    """Begin to serve the tree with rounds of `reconcile` that follow each other at once."""
    made: list[EstateWatch] = []

    def make(report: Callable[[ReconcileRound], object] = lambda _: None, **order: Any) -> EstateWatch:
        rounds = ReconcileOrder(**{"every_seconds": 0.05, "wait_seconds": 0.0, **order})
        asked = ServeOrder(every_seconds=1000, survey_seconds=1000, reconciles=ReconcilesOrder(rounds, report=report))
        made.append(EstateWatch(Workspace(), asked, look=lambda *_: look_of([]), survey=lambda *_: SURVEY))
        made[-1].start()
        return made[-1]

    yield make
    for watch in made:
        assert watch.close(10, 10)


def last_round(watch: EstateWatch) -> ReconcileRound | None:
    return watch.view.reconciles.last if watch.view.reconciles else None


def rounds_of(watch: EstateWatch) -> int:
    return sum(watch.view.reconciles.rounds.values()) if watch.view.reconciles else 0


def test_it_applies_the_tree_and_repairs_what_is_changed(site: Site, serving: Serving, leases: type[FakeLease]) -> None:
    watch = serving()
    until(lambda: last_round(watch), "a round has ended")
    assert site.names("east") == sorted(ON_EAST)
    site.east.connectors[SOURCE].config["tasks.max"] = "9"
    until(lambda: site.east.connectors[SOURCE].config["tasks.max"] == "1", "it is repaired")
    until(lambda: watch.view.reconciles and watch.view.reconciles.written >= 8, "both rounds are counted")
    shown = to_json(watch.view.reconciles)
    assert shown["last"]["outcome"] == "done"
    assert set(shown["rounds"]) == {"done"}
    assert watch.close(10, 10)
    assert leases.groups == {"mm2mgr-team"}
    assert sorted(leases.closed) == ["east", "west"], "the group is left at the end"


def test_it_has_the_gates_of_the_command(site: Site, serving: Serving) -> None:
    watch = serving()
    until(lambda: last_round(watch), "a round has ended")
    site.declare(FLOWS.replace("targets: [east, west]", "targets: [west]"))
    at = rounds_of(watch)
    until(lambda: rounds_of(watch) > at + 2, "it has read the tree again")
    assert site.names("east") == sorted(ON_EAST), "nothing is deleted unless it is said"
    (site.folder / "x.yaml").write_text("flows: {orders: {sources: [nowhere]}}\n")
    until(lambda: (last := last_round(watch)) and last.error, "a tree with mistakes is told")
    assert site.names("east") == sorted(ON_EAST)


def test_what_is_refused_is_told_with_its_reason_and_remedy(site: Site, serving: Serving) -> None:
    watch = serving()
    until(lambda: last_round(watch), "a round has ended")
    del site.east.connectors[SOURCE].config[OWNER_KEY]
    until(lambda: (last := last_round(watch)) and last.outcome == "failed", "the round is refused")
    until(lambda: watch.view.parts["reconcile"].is_failing, "the page and the metrics say so")
    failure = watch.view.parts["reconcile"].failure
    assert f"blocked: {SOURCE}: a connector of this name exists and carries no owner mark" in failure
    assert f"; fix: to manage that connector, write adopt: [{{connect: east, connector: {SOURCE}}}]" in failure
    assert OWNER_KEY not in site.east.connectors[SOURCE].config


def test_it_deletes_only_what_was_read_twice(site: Site, serving: Serving) -> None:
    watch = serving(options=PlanOptions(prune=True))
    until(lambda: last_round(watch), "a round has ended")
    site.declare(FLOWS.replace("  orders:", "  # orders:"))
    until(lambda: (last := last_round(watch)) and last.deletes_held, "it is held")
    assert SOURCE in site.names("east")


def test_it_stands_by_while_another_process_holds_the_lease_and_takes_over(
    site: Site, serving: Serving, leases: type[FakeLease]
) -> None:
    leases.of_others = {"east", "west"}
    watch = serving()
    until(lambda: (last := last_round(watch)) and last.outcome == "standby", "it stands by")
    assert site.names("east") == []
    leases.of_others = set()
    until(lambda: (last := last_round(watch)) and last.outcome == "done", "it has taken over")
    assert site.names("east") == sorted(ON_EAST)


def test_a_round_that_breaks_is_told_and_the_next_one_comes(
    site: Site, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [True]

    def report(_: ReconcileRound) -> None:
        if broken.pop(0) if broken else False:
            raise RuntimeError("the terminal is gone")

    waited: list[float] = []
    monkeypatch.setattr(timing, "wait", _unless_long(waited))
    watch = serving(report)
    until(lambda: watch.view.reconciles and watch.view.reconciles.rounds.get("failed"), "told")
    until(lambda: watch.view.reconciles and watch.view.reconciles.rounds.get("done", 0) > 1, "and begun anew")


def _unless_long(waited: list[float]) -> Callable[[threading.Event, float], bool]:
    def wait(event: threading.Event, seconds: float) -> bool:
        waited.append(seconds)
        return event.wait(min(seconds, 0.2))

    return wait


def test_nothing_is_begun_once_the_end_has_come(site: Site, leases: type[FakeLease]) -> None:
    """The plan is ready when the signal comes: it is not written, and not told as a round."""
    told: list[ReconcileRound] = []
    asked = ServeOrder(reconciles=ReconcilesOrder(ReconcileOrder(wait_seconds=0.0), report=told.append))
    watch = EstateWatch(Workspace(), asked, look=lambda *_: look_of([]), survey=lambda *_: SURVEY)
    reading = threading.Event()
    site.east.delay_next("GET", "/connectors", seconds=1)

    def stop() -> None:
        until(lambda: any(request.path.startswith("/connectors") for request in site.east.requests), "it reads")
        watch.stop()
        reading.set()

    threading.Thread(target=stop, daemon=True).start()
    assert asked.reconciles
    watch._parts.run("reconcile")
    assert reading.is_set()
    assert site.names("east") == []
    assert told == []


# --- sample -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def unsized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored records are not measured: the mock cluster answers no question about log folders."""
    monkeypatch.setattr(sys.modules[SampleOrder.__module__], "_stored_sizes", lambda *_: [])


@pytest.mark.usefixtures("unsized")
def test_samples_are_stored_and_a_changed_tree_is_sampled_anew(
    mm2mgr: Command, mock_cluster: KafkaAccess, tmp_path: Path, closed_port: int
) -> None:
    with one_flow(mm2mgr, mock_cluster, produced=3, mirrored=2):
        store = tmp_path / "store"
        order = SamplesOrder(SampleOrder(store, 0.2, None))
        asked = ServeOrder(every_seconds=1000, survey_seconds=1000, store=store, samples=order)
        watch = EstateWatch(
            Workspace((mm2mgr.tree,)), asked, look=lambda *_: look_of([]), survey=lambda *_: replace(SURVEY)
        )
        watch.start()
        try:
            until(lambda: watch.view.samples and watch.view.samples.samples >= 8, "two rounds of four partitions")
            assert SampleStore(store).hours()
            tree = mm2mgr.tree / "x.yaml"
            other = f'  c: {{bootstrap_servers: ["127.0.0.1:{closed_port}"]}}\n  a: {{'
            tree.write_text(tree.read_text().replace("  a: {", other).replace("sources: [a]", "sources: [a, c]"))
            watch.survey_once()
            assert watch.view.tree_error == ""
            until(lambda: "c" in to_json(watch.view.samples)["unread"], "the new source is asked, and named")
        finally:
            assert watch.close(20)


@pytest.mark.usefixtures("unsized")
def test_a_store_that_cannot_be_written_is_told_and_tried_again(
    mm2mgr: Command, mock_cluster: KafkaAccess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with one_flow(mm2mgr, mock_cluster, produced=3, mirrored=2):
        store, told = tmp_path / "store", list[str]()
        store.write_text("a file")
        monkeypatch.setattr(timing, "wait", _unless_long([]))
        order = SamplesOrder(SampleOrder(store, 0.2, None), warn=told.append)
        asked = ServeOrder(every_seconds=1000, survey_seconds=1000, samples=order)
        watch = EstateWatch(
            Workspace((mm2mgr.tree,)), asked, look=lambda *_: look_of([]), survey=lambda *_: replace(SURVEY)
        )
        watch.start()
        try:
            until(lambda: watch.view.samples and watch.view.samples.error, "it is told")
            assert told[0].startswith("nothing is sampled: ")
            store.unlink()
            until(lambda: watch.view.samples and watch.view.samples.samples, "it samples then")
            assert watch.view.samples is not None
            assert watch.view.samples.error == ""
        finally:
            assert watch.close(10)


# --- the process ------------------------------------------------------------------------------------------------------


def test_parts_are_in_json_and_metrics_and_all_end_in_time(mm2mgr: Command, mock_cluster: KafkaAccess) -> None:
    with one_flow(mm2mgr, mock_cluster, produced=3, mirrored=2) as connect:
        written = connect.writes
        parts = ("--with", "watch,reconcile", "--with", "sample", "--dry-run", "--report-only", "--interval", "1")
        with server(mm2mgr, "--every", "1000", *parts, program=impatient_mm2mgr(2)) as (running, url):
            until(lambda: get(f"{url}/api/reconcile").status_code == 200, "a round has ended")
            until(lambda: get(f"{url}/api/sample").status_code == 200, "samples are stored")
            until(lambda: get(f"{url}/api/watchdog").status_code == 200, "the watchdog has looked")
            reconciled, samples = get(f"{url}/api/reconcile").json(), get(f"{url}/api/sample").json()
            assert reconciled["rounds"].keys() <= {"done", "changes"}
            assert samples["samples"] >= 4
            metrics = get(f"{url}/metrics").text
            for name in ("reconcile_rounds_total", "sampled_timestamp_seconds", "watchdog_looked_timestamp_seconds"):
                assert f"mm2mgr_{name}{{" in metrics
            began = time.monotonic()
            running.send_signal(signal.SIGTERM)
            assert running.wait(DEADLINE_SECONDS) == 0
            assert time.monotonic() - began < allowed_seconds()
            assert running.stderr
            lines = running.stderr.read().splitlines()
            shapes = [re.match(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ (\w+): ", line) for line in lines]
            assert all(shapes), lines
            assert {"reconcile", "sample"} <= {shape[1] for shape in shapes if shape}
            assert len({line.partition(" ")[2] for line in lines}) == len(lines), "nothing twice"
        assert connect.writes == written
