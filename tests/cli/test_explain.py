"""explain: keys and rules without a tree, flows with one, secrets that stay hidden, and what it does not load."""

from __future__ import annotations

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.json_values import to_json
from mm2mgr.lint.rules import BY_ID
from mm2mgr.truth.explain import explain
from mm2mgr.truth.keys import load
from tests.project.test_cold_start import HEAVY, loaded
from tests.spec.trees import BASE, FLOW, write

from .command import Command
from .test_declare import SECRETS


def test_a_key_needs_no_tree(mm2mgr: Command) -> None:
    said = mm2mgr("explain", "producer.batch.size")
    assert said.lines[0] == "producer.batch.size (Kafka 4.3.1) reaches the offset-syncs producer (source)"
    assert "mirrored records are written by Connect's own producer" in said.out
    assert "record_producer: {batch.size: …}" in said.out
    assert said.err == ""


def test_lines_of_the_driver_are_explained(mm2mgr: Command) -> None:
    said = mm2mgr("explain", "dedicated.mode.enable.internal.rest")
    assert said.lines[0] == "dedicated.mode.enable.internal.rest (Kafka 4.3.1) is a line of mm2.properties"
    assert "KIP-710" in said.out
    assert "default false; since 3.5" in said.out
    older = mm2mgr("explain", "dedicated.mode.enable.internal.rest", "--kafka", "3.4")
    assert "does nothing: Kafka 3.4.1 does not have it" in older.lines[0]
    assert "is a line of mm2.properties" in mm2mgr("explain", "clusters").lines[0]


def test_text_and_json_say_the_same(mm2mgr: Command) -> None:
    found = mm2mgr("explain", "linger.ms", "--kafka", "3.9", "-o", "json").json
    assert found["kafka"] == "3.9.2"
    assert found["definitions"][0]["default"] == "0"
    text = mm2mgr("explain", "linger.ms", "--kafka", "3.9").out
    assert found["verdict"] in text
    assert all(way["raw"] in text for way in found["instead"])


def test_a_version_that_was_never_read_is_judged_by_the_one_before(mm2mgr: Command) -> None:
    said = mm2mgr("explain", "linger.ms", "--kafka", "9.0", "-o", "json")
    assert said.json["definitions"][0]["default"] == "5"
    assert "judged by 4.3" in said.err
    assert mm2mgr("explain", "linger.ms", "--kafka", "4.3.0").err == ""
    vendors = mm2mgr("explain", "linger.ms", "--kafka", "7.9.1-ccs")
    assert (vendors.out, vendors.err) == (mm2mgr("explain", "linger.ms", "--kafka", "3.9").out, "")


@pytest.mark.parametrize("command", [("explain", "linger.ms"), ("lint",)], ids=["explain", "lint"])
def test_a_version_before_the_oldest_known_one_is_refused(mm2mgr: Command, command: tuple[str, ...]) -> None:
    refused = mm2mgr(*command, "--kafka", "2.5.1", code=64)
    assert "Kafka 2.5.1 is not known: 2.7 to 4.3 are" in refused.err


def test_a_known_bug_is_explained(mm2mgr: Command) -> None:
    found = mm2mgr("explain", "kafka-12468", "-o", "json").json
    assert (found["bug"], found["releases"], found["rule"]) == ("KAFKA-12468", [["2.4.0", "3.4.0"]], "known-bug")
    said = mm2mgr("explain", "KAFKA-12468").out
    assert all(text in said for text in (found["effect"], found["span"], found["remedy"], "unverified"))
    assert "known-bugs.md" in mm2mgr("explain", "KAFKA-1", code=1).err


def test_an_older_line_is_explained_by_its_own_jars(mm2mgr: Command) -> None:
    old = mm2mgr("explain", "source.consumer.fetch.max.bytes", "--kafka", "2.7").out
    assert "does nothing" in old
    assert " consumer.fetch.max.bytes" in old
    assert "does nothing" not in mm2mgr("explain", "source.consumer.fetch.max.bytes", "--kafka", "2.8").out


@pytest.mark.parametrize("name", ["source", "MirrorSource", "org.apache.kafka.connect.mirror.MirrorSourceConnector"])
def test_on_takes_types_and_class_names(mm2mgr: Command, name: str) -> None:
    found = mm2mgr("explain", "producer.override.acks", "--on", name, "-o", "json").json
    assert {effect["connector"] for effect in found["effects"]} == {"source"}


@pytest.mark.parametrize(("option", "value"), [("--on", "sink"), ("--kafka", "newest")])
def test_wrong_options_are_wrong_usage(mm2mgr: Command, option: str, value: str) -> None:
    assert value in mm2mgr("explain", "acks", option, value, code=64).err


def test_an_unknown_key_fails_with_the_nearest(mm2mgr: Command) -> None:
    said = mm2mgr("explain", "source.consumer.fetch.max.byte", code=1)
    assert said.out == ""
    assert said.err.endswith("hint: nearest: source.consumer.fetch.max.bytes\n")
    write(mm2mgr.tree, x=BASE + FLOW)
    assert mm2mgr("explain", "source.consumer.fetch.max.byte", code=1).err == said.err


@pytest.mark.parametrize("name", ["f", "a->b", "f:a->b"])
def test_a_flow_shows_each_client_with_origins(mm2mgr: Command, name: str) -> None:
    write(mm2mgr.tree, x=BASE + FLOW + "    source_consumer: {max.poll.records: 7}\n")
    found = mm2mgr("explain", name, "-o", "json").json
    assert {each["type"] for each in found} == {"source", "checkpoint", "heartbeat"}
    (source,) = [each for each in found if each["type"] == "source"]
    reader = {value["key"]: value for value in source["clients"][0]["values"]}
    assert source["clients"][0]["client"] == "source consumer"
    assert reader["max.poll.records"]["value"] == "7"
    assert "clusters/x.yaml:12" in reader["max.poll.records"]["origin"]
    assert reader["max.poll.records"]["written_as"] == "source.consumer.max.poll.records"
    assert reader["bootstrap.servers"]["value"] == "a1:9092"
    assert reader["auto.offset.reset"]["origin"] == "set by MirrorMaker"
    text = mm2mgr("explain", name, "--on", "source").out
    assert "clusters/x.yaml:12" in text
    assert "checkpoint" not in text


def test_all_adds_kafkas_own_defaults(mm2mgr: Command) -> None:
    write(mm2mgr.tree, x=BASE + FLOW)
    set_only, everything = mm2mgr("explain", "f").out, mm2mgr("explain", "f", "--all").out
    assert "fetch.max.wait.ms" not in set_only
    assert "fetch.max.wait.ms" in everything


def test_secrets_of_a_flow_stay_hidden(mm2mgr: Command) -> None:
    write(mm2mgr.tree, x=SECRETS + FLOW)
    for output in ("text", "json"):
        said = mm2mgr("explain", "f", "-o", output)
        assert "pa55-of-a" not in said.out
        assert "trusted-word" not in said.out
        assert "[hidden]" in said.out


def test_an_unknown_flow_and_a_broken_tree_are_told(mm2mgr: Command) -> None:
    write(mm2mgr.tree, x=BASE + FLOW)
    said = mm2mgr("explain", "f:a->c", code=1)
    assert "no flow 'f:a->c'" in said.err
    assert "f:a->b" in said.err
    write(mm2mgr.tree, x=BASE + FLOW + "    nonsense: 1\n")
    assert "nonsense" in mm2mgr("explain", "f", code=1).err


def test_a_key_loads_no_model_no_template_and_no_client() -> None:
    assert not loaded("explain", "producer.batch.size") & (HEAVY - {"rich"})


def test_a_rule_is_explained_without_a_tree(mm2mgr: Command) -> None:
    found = mm2mgr("explain", "dead-key", "-o", "json").json
    assert found == to_json(BY_ID["dead-key"])
    said = mm2mgr("explain", "dead-key")
    assert said.lines[0] == f"dead-key (error): {found['title']}."
    assert said.lines[-1] == f"test:   {found['seen']}"
    assert f"source: {found['source']}" in said.lines
    assert found["story"].partition("\n\n")[2].split() == " ".join(said.lines[2:-3]).split()
    assert said.err == ""


def test_an_unknown_rule_fails_with_the_nearest(mm2mgr: Command) -> None:
    assert mm2mgr("explain", "dead-keys", code=1).err.endswith("hint: nearest rule of lint: dead-key\n")


def test_a_flow_named_like_a_rule_is_meant_by_its_id(mm2mgr: Command) -> None:
    write(mm2mgr.tree, x=BASE + FLOW.replace("  f:", "  dead-key:"))
    assert mm2mgr("explain", "dead-key").lines[0].startswith("dead-key (error)")
    assert "mm2.a.b.source.dead-key" in mm2mgr("explain", "dead-key:a->b").out


@pytest.mark.parametrize("rule", sorted(BY_ID))
def test_no_rule_is_named_like_a_key(rule: str) -> None:
    keys = load()
    with pytest.raises(Mm2mgrError, match="knows the key"):
        explain(rule, ("source", "checkpoint", "heartbeat"), keys.releases[keys.lines[-1]], keys)
