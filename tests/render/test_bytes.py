"""Values survive templates byte for byte: line ends, equals signs, blanks, braces, even the marks the renderer uses inside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mm2mgr.connectors import Connector
from mm2mgr.render import render
from tests.spec.trees import BASE, FLOW, expanded

PEM = "-----BEGIN PRIVATE KEY-----\nMIIE vQ==\n\tx = y\n-----END PRIVATE KEY-----\n"
TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=60)


def source(folder: Path, block: str, key: str, value: str) -> Connector:
    # JSON text is YAML text; a surrogate pair would not be.
    more = f"    {block}:\n      {key}: {json.dumps(value)}\n"
    return next(one for one in render(expanded(folder, x=BASE + FLOW + more)) if one.type == "source")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80, deadline=None)
@given(TEXT)
@example(PEM)
@example("  leading and trailing  ")
@example("a = b = c")
@example("# no comment")
@example("{{ name }} {% if x %} {# #}")
@example("\x010\x01 \x02x:1\x02")
@example("\r\n")
@example("")
def test_any_value_reaches_the_config_unchanged(tmp_path: Path, value: str) -> None:
    connector = source(tmp_path, "record_producer", "some.key", value)
    assert connector.config["producer.override.some.key"] == value
    assert connector.origins["producer.override.some.key"].where.endswith("x.yaml:13")
    assert connector.config["name"] == "mm2.a.b.source.f"
    assert connector.config["header.converter"].endswith("ByteArrayConverter")


def test_pem_in_the_cluster_reaches_every_client_of_it(tmp_path: Path) -> None:
    security = json.dumps({"protocol": "SSL", "ssl.keystore.key": PEM})
    text = BASE.replace("[b1:9092]}", f"[b1:9092], security: {security}}}").replace("kafka: b", "kafka: a")
    _, found, _ = render(expanded(tmp_path, x=text + FLOW + "    run_on: w\n"))
    assert found.config["target.cluster.ssl.keystore.key"] == PEM
    assert found.config["producer.override.ssl.keystore.key"] == PEM


@pytest.mark.parametrize(
    ("written", "sent"), [("5", "5"), ("true", "true"), ("No", "false"), ("0.5", "0.5"), ("-1", "-1"), ("'007'", "007")]
)
def test_yaml_scalars_become_the_text_kafka_reads(tmp_path: Path, written: str, sent: str) -> None:
    text = BASE + FLOW + f"    source_connector: {{some.key: {written}}}\n"
    assert render(expanded(tmp_path, x=text))[1].config["some.key"] == sent


@pytest.mark.parametrize(("written", "seconds"), [("10min", "600"), ("1500ms", "2"), ("1ms", "1"), ("0.5h", "1800")])
def test_intervals_become_whole_seconds_and_never_none(tmp_path: Path, written: str, seconds: str) -> None:
    found = render(expanded(tmp_path, x=BASE + FLOW + f"    refresh_interval: {written}\n"))
    assert found[1].config["refresh.topics.interval.seconds"] == seconds
    assert found[2].config["refresh.groups.interval.seconds"] == seconds
