"""Some hundred hostile probes by kinds against the one oracle of `probes`: a sample in the gate, all of them in `make test-matrix`."""

from __future__ import annotations

from collections import Counter

import pytest

from mm2mgr.observe.read import ObserveOptions
from tests.asking import answer_kafka
from tests.cli.command import Command
from tests.plan.site import Site

from .probes import Ground, defects, every_probe

PROBES = every_probe()
KINDS = sorted({probe.kind for probe in PROBES})
SAMPLE = 3


def ground_of(site: Site, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch) -> Ground:
    monkeypatch.setattr("mm2mgr.files.PIPE_SECONDS", 0.1)
    ground = Ground(site, mm2mgr)
    answer_kafka(site.patch, texts=lambda _: dict(ground.texts))
    _, *others = ObserveOptions.__init__.__defaults__ or ()
    monkeypatch.setattr(ObserveOptions.__init__, "__defaults__", (ground.read_kafka, *others))
    monkeypatch.setattr("mm2mgr.apply.settle.HOLD_SECONDS", 0.0)
    monkeypatch.setattr("mm2mgr.apply.execute._READ_BACK_SECONDS", 0.0)
    ground.settle()
    return ground


def run_all(ground: Ground, kind: str, step: int) -> dict[str, list[str]]:
    chosen = [probe for probe in PROBES if probe.kind == kind]
    wrong = {}
    for probe in chosen[::step]:
        if found := defects(ground, probe):
            wrong[probe.name] = found
    print(f"{kind}: {len(chosen[::step])} probes, {len(wrong)} with a defect")
    return wrong


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_of_each_kind(site: Site, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    ground = ground_of(site, mm2mgr, monkeypatch)
    count = sum(probe.kind == kind for probe in PROBES)
    assert run_all(ground, kind, -(-count // SAMPLE)) == {}


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
def test_every_probe(site: Site, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    assert run_all(ground_of(site, mm2mgr, monkeypatch), kind, 1) == {}


def test_there_are_enough() -> None:
    counts = Counter(probe.kind for probe in PROBES)
    assert sum(counts.values()) >= 500, counts
    assert min(counts.values()) >= 8, counts
