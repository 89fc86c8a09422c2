"""`import --check`: exit 0 where every client gets what it got, 2 with each difference, 1 where it cannot be judged."""

from __future__ import annotations

import json

import pytest

from .command import Command

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
CONFIG = {
    **{"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector", "name": "legacy-orders"},
    **{"source.cluster.alias": "dc1", "target.cluster.alias": "agg", "topics": "orders", "tasks.max": "4"},
    **{"source.cluster.bootstrap.servers": "dc1-k1:9092", "target.cluster.bootstrap.servers": "agg-k1:9092"},
    **dict.fromkeys(("key.converter", "value.converter", "header.converter"), BYTES),
    **{"producer.override.linger.ms": "100", "source.consumer.fetch.max.bytes": "1000000"},
    **{"source.cluster.security.protocol": "SASL_SSL", "source.cluster.sasl.mechanism": "PLAIN"},
    "source.cluster.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="u" password="hunter22";',
}


@pytest.fixture
def imported(mm2mgr: Command) -> Command:
    """Return the command in a folder with a connector's JSON, and the tree that was made of it."""
    (mm2mgr.folder / "connector.json").write_text(json.dumps(CONFIG, indent=1), encoding="utf-8")
    said = mm2mgr("import", "connector.json", "--owner", "team", "--kafka", "3.9", "--out", "new", code=3)  # a secret
    assert "checked: 1 connector with 6 clients compared: each gets what it got" in said.err
    return mm2mgr


def edit(mm2mgr: Command, old: str, new: str) -> None:
    [file] = [path for path in (mm2mgr.folder / "new").iterdir() if old in path.read_text(encoding="utf-8")]
    file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def test_an_imported_tree_is_equal_and_its_secrets_are_a_condition(imported: Command) -> None:
    said = imported("import", "connector.json", "--check", "new", "--kafka", "3.9")
    assert "each gets what it got" in said.lines[-1]
    assert any("has to hold what sasl.jaas.config was in clear" in line for line in said.lines)
    assert "hunter" not in said.out + said.err
    document = imported("import", "connector.json", "--check", "new", "--kafka", "3.9", "-o", "json").json
    assert (document["outcome"], document["differences"], document["open"]) == ("equal", [], [])
    assert [place["keys"] for place in document["secrets"]] == [["sasl.jaas.config"]]


def test_an_edited_tree_names_client_key_and_line(imported: Command) -> None:
    edit(imported, "1000000", "2000000")
    said = imported("import", "connector.json", "--check", "new", "--kafka", "3.9", code=2)
    assert said.lines[0] == "legacy-orders"
    [row] = [line for line in said.lines if "fetch.max.bytes" in line]
    line = next(n for n, text in enumerate(json.dumps(CONFIG, indent=1).splitlines(), 1) if "fetch.max.bytes" in text)
    assert "source consumer" in row
    assert f"(connector.json:{line})" in row
    [difference] = imported("import", "connector.json", "--check", "new", "-o", "json", code=2).json["differences"]
    assert (difference["old"], difference["new"], difference["lines"]) == ("1000000", "2000000", [])


def test_what_the_workers_have_decides(imported: Command) -> None:
    bare = {key: value for key, value in CONFIG.items() if not key.endswith(".converter")}
    (imported.folder / "bare.json").write_text(json.dumps(bare), encoding="utf-8")
    said = imported("import", "bare.json", "--check", "new", "--kafka", "3.9", code=1)
    assert "Not judged" in said.out
    properties = ["bootstrap.servers=agg-k1:9092", "group.id=w", f"key.converter={BYTES}", f"value.converter={BYTES}"]
    worker = imported.folder / "worker.properties"
    worker.write_text("\n".join([*properties, f"header.converter={BYTES}"]), encoding="utf-8")
    imported("import", "bare.json", "--check", "new", "--kafka", "3.9", "--worker", "worker.properties")
    worker.write_text("\n".join(properties), encoding="utf-8")  # and so SimpleHeaderConverter
    said = imported("import", "bare.json", "--check", "new", "--kafka", "3.9", "--worker", "worker.properties", code=2)
    assert "header.converter" in said.out


def test_what_cannot_be_asked_together(imported: Command) -> None:
    imported("import", "connector.json", "--check", "new", "--out", "other", code=64)
    imported("import", "connector.json", "--check", "new", "-o", "markdown", code=64)
    imported("import", "connector.json", "--worker", "connector.json", code=64)
    imported("import", "connector.json", "--check", "new", "--kafka", "x", code=64)
    imported("import", "new", "--check", "new", code=1)
