"""The simulated MirrorMaker against what Kafka's sources say and real workers did: it judges plans, so it must be right itself."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.plan.simulated import Connector, Told, World, harms, remote_name, replicates, run

IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
ADDRESSES = {"a:9092": "a", "b:9092": "b", "c:9092": "c"}


def connector(pair: str, topics: str = ".*", name: str = "", version: str = "4.3.1", **more: str) -> Connector:
    source, target = pair
    config = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": source,
        "target.cluster.alias": target,
        "source.cluster.bootstrap.servers": f"{source}:9092",
        "producer.override.bootstrap.servers": f"{target}:9092",
        "topics": topics,
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    return Connector("x", name or pair, config, target, version)


def keeps_names(pair: str, topics: str = ".*", **more: str) -> Connector:
    return connector(pair, topics, replication_policy_class=IDENTITY, **more)


def world(**topics: str) -> World:
    """Return a world in which each topic holds two records; the arguments name the topics of a cluster."""
    found = World({"a": {}, "b": {}, "c": {}}, ADDRESSES)
    for cluster, names in topics.items():
        for name in names.split():
            found.produce(cluster, name, f"{cluster}/{name}/1", f"{cluster}/{name}/2")
    return found


def sizes(found: World, cluster: str) -> Mapping[str, int]:
    return {topic: sum(map(len, logs)) for topic, logs in found.clusters[cluster].items()}


@pytest.mark.parametrize(
    ("topic", "version", "mirrored"),
    [
        ("t", "4.3.1", True),
        ("__t", "4.3.1", False),
        (".t", "4.3.1", False),
        ("t.replica", "4.3.1", False),
        ("t-internal", "4.3.1", True),  # KIP-1074
        ("t.internal", "4.3.1", True),
        ("t-internal", "3.9.1", False),
        ("t.internal", "3.9.1", False),
        ("mm2-configs.a.internal", "4.3.1", False),
        ("a.checkpoints.internal", "4.3.1", False),
        ("b.t", "4.3.1", False),
        ("c.b.t", "4.3.1", False),
        ("bb.t", "4.3.1", True),
        ("b.", "4.3.1", True),  # Java's split drops the empty part
        ("b", "4.3.1", True),
        ("b_t", "4.3.1", True),
    ],
)
def test_which_topics_a_connector_takes(topic: str, version: str, mirrored: bool) -> None:
    assert replicates(connector("ab", version=version), topic) is mirrored


def test_an_exclude_list_takes_the_place_of_kafkas_own_but_internal_topics_stay_out() -> None:
    own = connector("ab", topics_exclude="u")
    assert [name for name in ("t", "u", "t.replica", "__t") if replicates(own, name)] == ["t", "t.replica"]


def test_dots_match_anything_and_the_whole_name_must_match() -> None:
    taken = [name for name in ("eu.t", "eu-t", "eu.tt", "u") if replicates(connector("ab", " eu.t , u"), name)]
    assert taken == ["eu.t", "eu-t", "u"]


def test_the_separator_is_part_of_names_and_of_cycles() -> None:
    other = connector("ab", replication_policy_separator="_")
    assert remote_name(other, "t") == "a_t"
    assert not replicates(other, "b_t")
    assert replicates(other, "b.t")
    assert (remote_name(keeps_names("ab"), "t"), replicates(keeps_names("ab"), "b.t")) == ("t", True)


def test_both_ways_with_aliases_in_the_names_come_to_rest() -> None:
    found = world(a="t", b="t")
    assert run(found, [connector("ab"), connector("ba")]).growing == {}
    assert sizes(found, "a") == {"t": 2, "b.t": 2}
    assert sizes(found, "b") == {"t": 2, "a.t": 2}
    assert not found.repeated()


def test_both_ways_with_disjoint_patterns_and_names_kept_come_to_rest() -> None:
    found = world(a="eu.t", b="us.t")
    assert run(found, [keeps_names("ab", "eu[.].*"), keeps_names("ba", "us[.].*")]).growing == {}
    assert sizes(found, "a") == sizes(found, "b") == {"eu.t": 2, "us.t": 2}


def test_a_ring_that_keeps_names_grows_without_end() -> None:
    """As three real clusters did: 10 records became 18 621 on each within 50 s."""
    found = world(a="t")
    grown = run(found, [keeps_names(pair) for pair in ("ab", "bc", "ca")]).growing
    assert grown.keys() == {("a", "t"), ("b", "t"), ("c", "t")}
    assert sizes(found, "a")["t"] > 10


def test_another_alias_on_the_way_back_makes_ever_longer_names() -> None:
    back = connector("ba", source_cluster_alias="B", target_cluster_alias="A")
    found = world(a="t")
    assert run(found, [connector("ab"), back]).growing
    assert "B.a.B.a.t" in found.clusters["a"]


def test_offsets_belong_to_connect_cluster_name_alias_and_topic() -> None:
    """A topic moved to another connector of the pair starts from 0 there, as seen: 24 251 records became 46 602."""
    found = world(a="t u")
    run(found, [connector("ab", "t,u", "f")])
    found.produce("a", "t", "a/t/3")
    run(found, [connector("ab", "u", "f")])
    assert sizes(found, "b") == {"a.t": 2, "a.u": 2}
    run(found, [connector("ab", "t,u", "f")])  # taken up again, it goes on where it was
    assert sizes(found, "b") == {"a.t": 3, "a.u": 2}
    before, idle_world = found.copy(), found.copy()
    seen = run(world(a="t u"), [connector("ab", "t,u", "f")]).writes
    idle, busy = run(idle_world, [connector("ab", "t,u", "f")]), run(found, [connector("ab", "t", "g")])
    assert sizes(found, "b") == {"a.t": 6, "a.u": 2}
    harm = list(harms(before, (idle_world, idle), (found, busy), Told(seen)))
    assert {(each.kind, each.topic) for each in harm} == {("twice", "a.t"), ("from the start", "t")}
    assert {each.by for each in harm} == {(("x", "g"),)}


def test_records_follow_the_producer_and_stopped_connectors_move_nothing() -> None:
    astray = connector("ab")
    config = {key: value for key, value in astray.config.items() if not key.startswith("producer.")}
    found = world(a="t")
    run(found, [Connector("x", "astray", config, kafka="c"), Connector("x", "off", astray.config, running=False)])
    assert (sizes(found, "b"), sizes(found, "c")) == ({}, {"a.t": 2})
