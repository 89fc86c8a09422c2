"""What `explain` says: spellings people try, connector keys, keys of other versions, and what nobody knows."""

from __future__ import annotations

import json

import pytest

from mm2mgr.connectors import ConnectorType
from mm2mgr.errors import Mm2mgrError
from mm2mgr.formats import properties
from mm2mgr.formats.mm2_properties import Dedicated, connectors
from mm2mgr.json_values import to_json
from mm2mgr.truth.explain import KINDS, Explanation, explain, policy_of
from mm2mgr.truth.keys import load
from mm2mgr.truth.reach import CLIENTS, Setting, configured_clients, text_of
from tests.truth.reaching import reached

TYPES: tuple[ConnectorType, ...] = ("source", "checkpoint", "heartbeat")


def told(key: str, types: tuple[ConnectorType, ...] = TYPES, kafka: str = "4.3.1") -> Explanation:
    return explain(key, types, kafka, load())


def ways(explanation: Explanation) -> dict[str, str | None]:
    """Return raw key -> YAML."""
    return {way.raw: way.yaml for way in explanation.instead}


@pytest.mark.parametrize(
    ("key", "verdict"),
    [
        ("batch.size", "does nothing: no client reads a connector's key without a prefix"),
        ("producer.batch.size", "reaches the offset-syncs producer (source)"),
        ("source.producer.batch.size", "reaches the offset-syncs producer (source)"),
        ("target.producer.batch.size", "does nothing by default: the offset-syncs producer (source) would see it only"),
        ("producer.override.batch.size", "reaches the record producer (source, checkpoint, heartbeat)"),
        ("record_producer.batch.size", "reaches the record producer (source)"),
        ("source.cluster.producer.batch.size", "does nothing: source.cluster. passes only bootstrap.servers"),
        ("offset-syncs.producer.batch.size", "does nothing: no client of these connectors reads offset-syncs.pro"),
        ("source.consumer.batch.size", "does nothing: a consumer does not know this key"),
        ("dc1->agg.producer.batch.size", "is a line of mm2.properties for one pair: it reaches the offset-syncs prod"),
    ],
)
def test_every_spelling_of_batch_size_leads_to_the_record_producer(key: str, verdict: str) -> None:
    explanation = told(key)
    assert explanation.verdict.startswith(verdict)
    assert ways(explanation)["producer.override.batch.size"] is None  # checkpoint, heartbeat: no YAML
    source = [way for way in explanation.instead if way.yaml == "record_producer: {batch.size: …}"]
    assert [way.raw for way in source] == ["producer.override.batch.size"]
    assert "Allowlist (4.2 and newer) that lists batch.size" in source[0].policy


@pytest.mark.parametrize("plain", ["linger.ms", "fetch.max.bytes", "retries", "client.rack", "request.timeout.ms"])
def test_what_is_said_to_write_instead_reaches_its_client(plain: str) -> None:
    for way in told(plain).instead:
        for type_ in TYPES:
            hits = {hit.client.name for hit in reached(type_, way.raw, Setting())}
            assert (type_ in way.connectors) <= bool(hits & set(way.client.split(", "))), (way, type_)


def test_the_block_of_the_yaml_is_the_one_the_templates_write() -> None:
    blocks = {client.name: client.block for client in CLIENTS["heartbeat"]}
    assert blocks["target admin"] == "source_admin"  # beats go to the flow's source
    assert told("source_admin.retries").verdict.endswith("the target admin (heartbeat)")


def test_overrides_of_the_frameworks_own_clients_need_a_reason_to_be_looked_at() -> None:
    explanation = told("admin.override.retries", ("source",))
    assert explanation.verdict == (
        "does nothing by default: the framework admin (source) would see it "
        "only with offsets.storage.topic, topic.creation.* or an exactly-once worker"
    )
    assert "admin.override.retries" in ways(explanation)
    assert "admin.override.retries" not in ways(told("retries"))


def test_a_general_prefix_is_outranked_and_a_shared_address_is_warned_of() -> None:
    explanation = told("consumer.bootstrap.servers", ("source",))
    assert [effect.outranked_by for effect in explanation.effects] == [("source.consumer.",)]
    assert any("clients of both clusters" in note for note in explanation.notes)


def test_access_is_said_once_per_cluster() -> None:
    found = ways(told("ssl.truststore.location", ("source",)))
    assert set(found) == {
        f"{p}ssl.truststore.location" for p in ("source.cluster.", "target.cluster.", "producer.override.")
    }
    assert set(found.values()) == {"clusters: {<alias>: {security: {ssl.truststore.location: …}}}"}
    assert "{protocol: …}" in str(ways(told("security.protocol"))["target.cluster.security.protocol"])


def test_defaults_are_those_of_the_version_and_say_who_sets_another() -> None:
    (old,), (new,) = told("linger.ms", kafka="3.9.2").definitions, told("linger.ms").definitions
    assert (old.default, new.default) == ("0", "5")
    assert old.history == new.history == ("0 in 2.7-3.9", "5 in 4.0-4.3")
    (acks,) = told("producer.override.max.in.flight.requests.per.connection").definitions
    assert acks.default == "5"
    assert "record producer: 1 (Connect)" in acks.set_instead
    (fetch,) = told("fetch.max.bytes").definitions
    assert any(each.startswith("source_consumer: 16777216 (mm2mgr: ") for each in fetch.set_instead)


def test_what_mirrormaker_forces_is_said_to_do_nothing() -> None:
    explanation = told("source.consumer.enable.auto.commit", ("source",))
    assert explanation.verdict == "does nothing: MirrorMaker sets this itself, last"
    assert explanation.instead == ()


def test_keys_of_connectors_say_where_the_yaml_has_them() -> None:
    assert ways(told("tasks.max")) == {"tasks.max": "tasks: {max: N}"}
    assert ways(told("offset.lag.max")) == {"offset.lag.max": "source_connector: {offset.lag.max: …}"}
    assert told("groups").verdict == "is read by the connector itself (checkpoint)"
    assert told("groups", ("heartbeat",)).verdict == "does nothing: only checkpoint connectors read it"
    assert told("source.consumer.groups").verdict.startswith("does nothing: it is a connector's own key")


def test_keys_of_other_versions_are_told_as_such() -> None:
    assert told("emit.offset-syncs.enabled", kafka="3.8.1").verdict == "does nothing: Kafka 3.8.1 does not have it"
    assert told("emit.offset-syncs.enabled").definitions[0].lines == "since 3.9"
    gone = told("topics.blacklist")
    assert gone.definitions[0].lines == "since 2.7 or earlier, gone after 3.9; not in 4.3.1"
    assert ways(gone) == {"topics.exclude": "topics: {exclude: [...]}"}
    assert told("topics.blacklist", kafka="3.9.2").verdict == "is read by the connector itself (source, checkpoint)"


def test_keys_of_workers_are_sent_there() -> None:
    explanation = told("offset.flush.interval.ms")
    assert explanation.verdict == "does nothing on a connector: it belongs in the properties of the Connect workers"


@pytest.mark.parametrize(
    ("typo", "near"),
    [
        ("producer.override.batch.sizes", "nearest: producer.override.batch.size"),
        ("fetch.max.byte", "nearest: fetch.max.bytes"),
        ("tpoics", "nearest: topics"),
        ("emit.heartbeat.enabled", "nearest: emit.heartbeats.enabled"),
    ],
)
def test_unknown_keys_get_the_nearest_known_one(typo: str, near: str) -> None:
    with pytest.raises(Mm2mgrError) as raised:
        told(typo)
    assert typo in raised.value.message
    assert raised.value.hint == near


def test_every_known_client_key_can_be_explained_with_and_without_a_prefix() -> None:
    keys = load()
    prefixes = ("source.cluster.", "admin.", "consumer.override.")
    for kind in ("producer", "consumer", "admin"):
        for plain in keys.names(kind):
            for prefix in ("", *prefixes):
                explanation = told(prefix + plain)
                assert explanation.verdict.startswith(("reaches ", "does nothing", "is read by")), explanation
                json.dumps(to_json(explanation))


def test_who_needs_which_policy() -> None:
    assert policy_of("source.consumer.client.rack") == ""
    assert "Principal" in policy_of("producer.override.sasl.mechanism")
    assert "Principal" not in policy_of("producer.override.bootstrap.servers")


def test_settings_of_clients_come_from_the_winning_key() -> None:
    config = {"consumer.client.rack": "a", "source.consumer.client.rack": "b", "producer.override.acks": "1", "x": "y"}
    found = configured_clients("source", config)
    rack = found["source consumer"].value("client.rack")
    assert rack
    assert (rack.value, rack.origin, rack.written_as) == ("b", "connector", "source.consumer.client.rack")
    produced = {value.key: (value.value, value.origin) for value in found["record producer"].values(load())}
    assert produced["acks"] == ("1", "connector")
    assert produced["enable.idempotence"] == ("false", "set by Connect")
    assert produced["bootstrap.servers"] == ("the workers' own", "Connect worker")
    left = {value.key: value.value for value in found["record producer"].unset_values(load())}
    assert left["linger.ms"] == "5"
    assert not {"acks", "enable.idempotence"} & left.keys()
    assert text_of("source", config, "source consumer", "client.rack") == "b"
    assert text_of("source", config, "source consumer", "auto.offset.reset") == "earliest"
    assert text_of("heartbeat", config, "source consumer", "client.rack") == ""


# --- lines of mm2.properties ------------------------------------------------------------------------------------------

VALUE = "value-of-the-line"
OF_THE_DRIVER = {"enabled", "emit.heartbeats.enabled"}


def translated(line: str) -> tuple[set[str], bool]:
    """Return the keys of connectors that have the line's value, and whether the workers of A->B have it, as the driver translates it."""
    text = f"clusters = A, B\nA->B.enabled = true\n{line} = {VALUE}\n"
    made = list(connectors(Dedicated(properties.read(text, "mm2.properties"))))
    keys = {key for each in made for key, value in each.config.items() if value == VALUE}
    return keys, any(VALUE in each.workers.properties.values() for each in made if each.workers)


@pytest.mark.parametrize("prefix", ["A.", "B.", "A->B."])
def test_what_is_said_of_a_line_is_what_the_driver_makes_of_it(prefix: str) -> None:
    """For settings of clients, workers and connectors, after the names of a pair and of its clusters."""
    keys = load()
    names = {f"{kind}.{name}" for kind in KINDS for name in keys.names(kind)}
    names |= {name for scope in (*TYPES, "worker") for name in keys.names(scope) if "<" not in name}
    chosen = sorted(names - OF_THE_DRIVER)[:: len(names) // 100]
    lines = 0
    for name in chosen:
        of_connectors, of_workers = translated(prefix + name)
        hits = [hit for key in of_connectors for type_ in TYPES for hit in reached(type_, key, Setting())]
        readers = {hit.client.name for hit in hits if keys.find(hit.client.kind, hit.key, "4.3.1")}
        try:
            explanation = told(prefix + name)
        except Mm2mgrError:
            assert not readers, name
            continue
        effects = [effect for effect in explanation.effects if effect.does and not effect.when.startswith("only")]
        assert prefix != "A->B." or {effect.client for effect in effects} - {"connector"} <= readers, name
        if explanation.verdict.startswith("is a line of mm2.properties"):
            lines += 1
            assert of_connectors or of_workers, name
        else:
            assert not readers, name
        if "reaches the workers" in explanation.verdict:
            assert of_workers, name
    assert lines > 20


@pytest.mark.parametrize(
    ("key", "verdict", "note"),
    [
        (
            "A->B.enabled",
            "is a line of mm2.properties: it switches A->B on",
            "true starts all three connectors of A->B",
        ),
        (
            "A->B.emit.heartbeats.enabled",
            "is a line of mm2.properties for one pair: it is read by",
            "keeps the workers",
        ),
        ("A->B.group.id", "does nothing for a pair: no client reads", "the workers of A->B take it from B.group.id"),
        ("A->B.listeners", "does nothing for a pair: it belongs in the properties", "take it from B.listeners"),
        (
            "us.west.bootstrap.servers",
            "is a line of mm2.properties that lists us.west under clusters: it reaches all",
            "",
        ),
        (
            "B.producer.acks",
            "is a line of mm2.properties that lists B under clusters: it reaches the record producer",
            "",
        ),
        (
            "B.group.id",
            "is a line of mm2.properties that lists B under clusters: it reaches the workers of the pairs",
            "",
        ),
        (
            "config.storage.topic",
            "does nothing on a connector",
            "B.config.storage.topic those of the pairs that write to B",
        ),
        (
            "group.id",
            "does nothing: no client",
            "B.group.id reaches the workers of the pairs that write to B; group.id alone",
        ),
        (
            "exactly.once.source.support",
            "does nothing on a connector",
            "exactly.once.source.support alone reaches no worker",
        ),
        ("rest.advertised.port", "does nothing on a connector", "the driver's own REST server"),
        ("config.providers.file.class", "does nothing on a connector", "reaches the workers of all pairs"),
    ],
)
def test_lines_of_a_dedicated_file_are_told_with_their_place(key: str, verdict: str, note: str) -> None:
    explanation = told(key)
    assert explanation.verdict.startswith(verdict)
    assert note in "\n".join(explanation.notes)


def test_before_2_8_a_cluster_s_lines_reached_no_consumer() -> None:
    old = told("A.consumer.fetch.max.bytes", kafka="2.7.2")
    assert old.verdict == "does nothing: Kafka 2.7.2 gives such a line of mm2.properties to no client"
    assert "record producer" in told("B.producer.acks", kafka="2.7.2").verdict
