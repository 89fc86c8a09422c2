"""Values of workers' properties: which line they are reported at, and that one line is reported once. More are in corpus/faulty/kafkas_tests.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.lint.findings import Finding
from mm2mgr.lint.reading import Surroundings, read_files
from mm2mgr.lint.rules import BY_ID, lint
from mm2mgr.lint.subject import WorkerFacts
from mm2mgr.truth.keys import is_checked, load
from tests.lint import made

DRIVER = """clusters = A, B
A.bootstrap.servers = a1:9092
B.bootstrap.servers = b1:9092
A->B.enabled = true
"""


def told(path: Path, text: str, **workers: str) -> list[Finding]:
    path.write_text(text, encoding="utf-8")
    surroundings = Surroundings(worker=WorkerFacts(properties=workers or None))
    return lint(read_files([path], surroundings), (BY_ID["worker-value"], BY_ID["invalid-value"]))


@pytest.mark.parametrize(
    "line",
    [
        "B.producer.security.protocol = SASL",
        "B.offset.storage.partitions = 0",
        "status.storage.replication.factor = 0",
        "B.exactly.once.source.support = on",
        "B.producer.acks = some",
    ],
)
def test_a_line_of_the_driver_is_reported_once(tmp_path: Path, line: str) -> None:
    [finding] = told(tmp_path / "mm2.properties", f"{DRIVER}{line}\n")
    assert (finding.severity, finding.spot.line) == ("error", 5)


@pytest.mark.parametrize("line", ["security.protocol = abc", "B.security.protocol = abc"])
def test_what_connectors_read_too_is_not_reported_twice(tmp_path: Path, line: str) -> None:
    found = told(tmp_path / "mm2.properties", f"{DRIVER}{line}\n")
    assert {finding.rule for finding in found} == {"invalid-value"}


def test_a_connector_that_overrides_a_value_of_the_workers_does_not_get_it(tmp_path: Path) -> None:
    connector = made.source({}).config
    text = "".join(f"{key}={value}\n" for key, value in connector.items())
    assert [each.key for each in told(tmp_path / "c.properties", text, **{"producer.acks": "x"})] == ["producer.acks"]
    assert not told(tmp_path / "c.properties", f"{text}producer.override.acks=all\n", **{"producer.acks": "x"})


def test_overrides_of_connectors_do_nothing_in_the_properties_of_workers(tmp_path: Path) -> None:
    text = "".join(f"{key}={value}\n" for key, value in made.source({}).config.items())
    [finding] = told(tmp_path / "c.properties", text, **{"producer.override.acks": "all"})
    assert (finding.severity, finding.fix) == ("warning", "write producer.acks for it")


@pytest.mark.parametrize("version", ["2.8.2", "3.9.1", "4.3.1"])
def test_a_default_is_never_wrong(tmp_path: Path, version: str) -> None:
    known = load()
    names = (name for name in known.names("worker", version) if "<" not in name)
    keys = {name: key for name in names if (key := known.find("worker", name, version)) and key.default is not None}
    text = "".join(f"{key}={value}\n" for key, value in made.source({}).config.items())
    path = tmp_path / "c.properties"
    path.write_text(text, encoding="utf-8")
    worker = WorkerFacts(version=version, properties={name: key.default or "" for name, key in keys.items()})
    assert len([key for key in keys.values() if is_checked(key)]) > 20
    assert not lint(read_files([path], Surroundings(worker=worker)), (BY_ID["worker-value"],))
