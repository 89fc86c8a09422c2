"""`delivery: exactly_once`: what it compiles to, for which connectors, and what is refused beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.connectors import Connector
from mm2mgr.errors import TemplateError
from mm2mgr.expand import expand
from mm2mgr.render import render, template_folders
from mm2mgr.spec.files import load
from tests.spec.trees import BASE, FLOW, complaint, complaints, expanded

GOLDEN = Path(__file__).parent / "golden"
ONCE = FLOW + "    delivery: exactly_once\n"


def under(connector: Connector, prefix: str) -> dict[str, str]:
    """What the connector says under a prefix, tuning aside."""
    found = {key.removeprefix(prefix): value for key, value in connector.config.items() if key.startswith(prefix)}
    return {key: value for key, value in found.items() if not key.endswith("buffer.bytes")}


@pytest.mark.parametrize("case", [path.name for path in sorted(GOLDEN.glob("exactly_once_*"))])
def test_who_keeps_offsets_goes_where_the_records_go(case: str) -> None:
    for connector in render(expand(load([GOLDEN / case]))):
        producer = under(connector, "producer.override.")
        assert under(connector, "consumer.override.") == producer
        away = "bootstrap.servers" in producer
        assert under(connector, "admin.override.") == (producer if away else {})
        # On the workers' own Kafka offsets stay in the workers' own topic, with exactly-once and without.
        if "chosen-offsets" not in connector.config.values():
            assert connector.config.get("offsets.storage.topic") == (
                f"mm2mgr-offsets.{connector.connect}.internal" if away else None
            )


def test_only_source_connectors_of_such_flows_require_it(tmp_path: Path) -> None:
    second = FLOW.removeprefix("flows:\n").replace("  f:", "  g:").replace("[t]", "[u]")
    heartbeat, once, least, checkpoint = render(expanded(tmp_path, x=BASE + ONCE + second))
    assert once.config["exactly.once.support"] == "required"
    assert once.config["source.consumer.isolation.level"] == "read_committed"
    assert once.origins["exactly.once.support"].where.endswith("x.yaml:12")
    for other in (heartbeat, least, checkpoint):
        assert "exactly.once.support" not in other.config
        assert "source.consumer.isolation.level" not in other.config
        assert "source.consumer.max.poll.records" not in other.config


def test_without_it_nothing_is_written(tmp_path: Path) -> None:
    for connector in render(expanded(tmp_path, x=BASE + FLOW)):
        assert not under(connector, "consumer.override.")
        assert not {"offsets.storage.topic", "exactly.once.support"} & connector.config.keys()


def test_a_written_poll_size_stays(tmp_path: Path) -> None:
    _, source, _ = render(expanded(tmp_path, x=BASE + ONCE + "    source_consumer: {max.poll.records: 100}\n"))
    assert source.config["source.consumer.max.poll.records"] == "100"


def test_null_leaves_the_name_of_the_offsets_topic_to_the_workers(tmp_path: Path) -> None:
    more = "    run_on: w\n    source_connector: {offsets.storage.topic: null}\n"
    _, source, checkpoint = render(expanded(tmp_path, x=BASE.replace("kafka: b", "kafka: a") + ONCE + more))
    assert "offsets.storage.topic" not in source.config
    assert "offsets.storage.topic" in checkpoint.config


@pytest.mark.parametrize(
    ("block", "setting", "why"),
    [
        ("source_consumer", "isolation.level: read_uncommitted", "aborted transactions would be mirrored"),
        ("source_consumer", "isolation.level: null", "aborted transactions would be mirrored"),
        ("record_producer", "acks: 1", "refuses to start"),
        ("record_producer", "enable.idempotence: false", "decide this themselves"),
        ("record_producer", "transactional.id: mine", "decide this themselves"),
        ("source_connector", "transaction.boundary: connector", "draws no boundaries"),
    ],
)
def test_what_would_take_it_away_again_is_refused(tmp_path: Path, block: str, setting: str, why: str) -> None:
    found = complaint(tmp_path, x=BASE + ONCE + f"    {block}: {{{setting}}}\n")
    assert found.startswith("x.yaml:13:")
    assert f"{block}: {{{setting}}} on exactly-once workers ('w')" in found
    assert why in found


def test_a_flow_beside_it_must_suit_the_workers_too(tmp_path: Path) -> None:
    other = "  g: {sources: [b], targets: [a], topics: {include: [u]}, run_on: w, %s}\n"
    assert "acks" in complaint(tmp_path, x=BASE + ONCE + other % "record_producer: {acks: 1}")
    fine = other % "source_consumer: {isolation.level: read_uncommitted}"  # its own affair: it asked for nothing
    assert len(expanded(tmp_path, x=BASE + ONCE + fine).flows) == 2


def test_inherited_settings_are_named_by_their_own_line(tmp_path: Path) -> None:
    inherited = "defaults: {flows: {record_producer: {acks: 1}}}\n"
    [found] = complaints(tmp_path, x=BASE + ONCE, y=inherited)
    assert found.startswith("x.yaml:8:")
    assert "y.yaml:1" in found


def test_workers_said_to_be_without_it_are_no_place_for_such_a_flow(tmp_path: Path) -> None:
    found = complaint(tmp_path, x=BASE.replace("kafka: b", "kafka: b, exactly_once: false") + ONCE)
    assert found.startswith("x.yaml:12:")
    assert "Connect cluster 'w' has exactly_once: false" in found


def test_own_templates_cannot_forget_it(tmp_path: Path) -> None:
    shipped = (template_folders(None)[-1] / "source.properties.j2").read_text(encoding="utf-8")
    own = tmp_path / "templates"
    own.mkdir()
    (own / "source.properties.j2").write_text(shipped.replace('{{ settings("", exactly_once) }}\n', ""))
    topology = expanded(tmp_path / "tree", x=BASE + ONCE)
    with pytest.raises(TemplateError, match=r"source\.f': exactly\.once\.support = required is missing"):
        render(topology, own)


@pytest.mark.parametrize("block", ["source_connector", "checkpoint_connector", "heartbeat_connector"])
def test_the_connector_key_is_written_as_delivery(tmp_path: Path, block: str) -> None:
    found = complaint(tmp_path, x=BASE + FLOW + f"    {block}: {{exactly.once.support: required}}\n")
    assert "write delivery: exactly_once" in found
