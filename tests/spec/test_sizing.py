"""The one feedback edge: overrides/ holds what mm2mgr writes and nothing else does; hand-written beats override beats default."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spec.trees import BASE, FLOW, complaint, complaints, expanded

SIZED = 'sizing:\n  "f:a->b": {tasks_max: 6, reason: "38 MB/s", bytes_per_second: 38000000.0, measured: "p95"}\n'


def test_sizing_outside_overrides_is_refused(tmp_path: Path) -> None:
    rule = "only files in an overrides/ folder contain sizing: and brokers:, and nothing else"
    assert complaint(tmp_path, x=BASE + FLOW, y=SIZED) == f"y.yaml:1:1: 'sizing' does not belong in this file: {rule}"


def test_overrides_hold_nothing_but_sizing(tmp_path: Path) -> None:
    found = complaint(tmp_path, x=BASE, overrides__y=FLOW)
    assert found.startswith("overrides/y.yaml:1:1: 'flows' does not belong in this file: only files in an overrides/")


@pytest.mark.parametrize(
    ("tasks", "sized", "expected", "origin"),
    [
        ("", "", "1", "default mm2mgr: not sized yet (mm2mgr size)"),
        ("    tasks: {min: 3}\n", "", "3", "spec x.yaml:12"),
        ("", SIZED, "6", "override overrides/s.yaml:2"),
        ("    tasks: {max: auto}\n", SIZED, "6", "override overrides/s.yaml:2"),
        ("    tasks: {limit: 4}\n", SIZED, "4", "override overrides/s.yaml:2"),
        ("    tasks: {min: 8}\n", SIZED, "6", "override overrides/s.yaml:2"),
        ("    tasks: {max: 2}\n", SIZED, "2", "spec x.yaml:12"),
        ("    tasks: {max: 99, limit: 5}\n", "", "99", "spec x.yaml:12"),
    ],
)
def test_hand_written_beats_override_beats_default(
    tmp_path: Path, tasks: str, sized: str, expected: str, origin: str
) -> None:
    (flow,) = expanded(tmp_path, x=BASE + FLOW + tasks, overrides__s=sized).flows
    assert flow.tasks.maximum == expected
    assert str(flow.tasks.maximum.origin).replace(f"{tmp_path}/", "") == origin
    assert flow.tasks.automatic == (flow.settings.tasks.max == "auto")


def test_a_number_in_the_defaults_is_hand_written_too(tmp_path: Path) -> None:
    text = BASE + "defaults: {flows: {tasks: {max: 3}}}\n"
    assert expanded(tmp_path, x=text + FLOW, overrides__s=SIZED).flows[0].tasks.maximum == "3"
    back = FLOW + "    tasks: {max: auto}\n"
    assert expanded(tmp_path, x=text + back).flows[0].tasks.maximum == "6"


def test_sizing_of_a_flow_that_is_gone_decides_nothing_and_is_named(tmp_path: Path) -> None:
    topology = expanded(tmp_path, x=BASE + FLOW, overrides__s=SIZED.replace("f:a", "g:a"))
    assert topology.stale_sizing == ("g:a->b",)
    assert topology.flows[0].tasks.maximum == "1"


def test_sizing_with_a_bad_number(tmp_path: Path) -> None:
    found = complaints(tmp_path, x=BASE + FLOW, overrides__s=SIZED.replace("tasks_max: 6", "tasks_max: 0"))
    assert found == [
        "overrides/s.yaml:2:14: 'sizing.f:a->b.tasks_max' should be a whole number from 1, not the number 0"
    ]
