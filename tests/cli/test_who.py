"""`who` and `topics` as people use them: routes over connectors of several owners, reasons for what is not mirrored, live listings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mm2mgr.errors import KafkaError
from mm2mgr.expand import expand
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.render import render
from mm2mgr.spec.files import load
from tests.asking import answer_kafka, topics_with
from tests.cli.command import Command
from tests.connect.dead_ends import dead_url
from tests.fake_connect import MIRROR, FakeConnect, serving

from .load import addresses, produce

TREE = """\
owner: team
clusters:
  dc1: {{bootstrap_servers: ['dc1:9092'], cluster_id: dc1}}
  agg: {{bootstrap_servers: ['agg:9092'], cluster_id: agg}}
  dr: {{bootstrap_servers: ['dr:9092'], cluster_id: dr}}
connect:
  main: {{url: '{main}', kafka: agg, history: false}}
  other: {{url: '{other}', kafka: dr, history: false}}
flows:
  shop: {{sources: [dc1], targets: [agg], topics: {{include: [orders, 'app[.].*'], exclude: ['app[.]debug[.].*']}}}}
"""
OURS = "mm2.dc1.agg.source.shop"


def mirror(source: str, target: str, topics: str = ".*", **more: str) -> dict[str, str]:
    return {
        "connector.class": f"{MIRROR}MirrorSourceConnector",
        "source.cluster.alias": source,
        "target.cluster.alias": target,
        "source.cluster.bootstrap.servers": f"{source}:9092",
        "target.cluster.bootstrap.servers": f"{target}:9092",
        "topics": topics,
        **{key.replace("_", "."): value for key, value in more.items()},
    }


class Estate:
    """The tree's connectors on `main`, and those of others on `other`."""

    def __init__(self, mm2mgr: Command, main: FakeConnect, other: FakeConnect, urls: dict[str, str]) -> None:
        self.mm2mgr, self.main, self.other = mm2mgr, main, other
        self.kafka: dict[str, list[str]] = {
            "dc1": ["orders", "payments", "loop"],
            "agg": ["dc1.orders"],
        }  # dr does not answer
        mm2mgr.tree.mkdir()
        self.declare(urls)

    def read_topics(self, access: KafkaAccess) -> RunningKafka:
        if access.alias not in self.kafka:
            raise KafkaError(f"{access.alias}: no broker answered")
        return topics_with(dict.fromkeys(self.kafka[access.alias], 3))

    def declare(self, urls: dict[str, str]) -> None:
        (self.mm2mgr.tree / "tree.yaml").write_text(TREE.format(**urls))

    def who(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.mm2mgr("who", *arguments, "-o", "json", code=code).json
        return found

    def routes(self, *arguments: str, code: int = 0) -> list[str]:
        found = self.who(*arguments, code=code)["routes"]
        return [" > ".join(f"{stop['cluster']}:{stop['topic']}" for stop in way) for way in found]

    def refused(self, *arguments: str) -> dict[str, str]:
        return {each["connector"]: each["why"] for each in self.who(*arguments)["connectors"] if not each["takes"]}


@pytest.fixture
def estate(mm2mgr: Command, monkeypatch: pytest.MonkeyPatch) -> Iterator[Estate]:
    main, other = FakeConnect(cluster_id="agg"), FakeConnect(cluster_id="dr")
    other.add("copy-all", {**mirror("agg", "dr"), "mm2mgr.owner": "payments"})
    with serving(main) as main_url, serving(other) as other_url:
        made = Estate(mm2mgr, main, other, {"main": main_url, "other": other_url})
        answer_kafka(monkeypatch, topics=made.read_topics)
        yield made


@pytest.fixture
def applied(estate: Estate) -> Estate:
    """The same after an apply; the tree's connector runs."""
    for each in render(expand(load([estate.mm2mgr.tree]))):
        estate.main.add(each.name, each.config)
    return estate


@pytest.mark.parametrize("topic", ["orders", "dc1.orders", "agg.dc1.orders"])
def test_a_topic_is_followed_over_all_hops_from_any_of_its_names(applied: Estate, topic: str) -> None:
    assert applied.routes(topic) == ["dc1:orders > agg:dc1.orders > dr:agg.dc1.orders"]
    takers = {each["connector"]: each for each in applied.who(topic)["connectors"] if each["takes"]}
    assert takers.keys() == {OURS, "copy-all"}
    assert (takers[OURS]["state"], takers[OURS]["ours"]) == ("RUNNING", True)
    assert takers[OURS]["flows"] == ["shop:dc1->agg"]
    assert (takers["copy-all"]["owner"], takers["copy-all"]["ours"], takers["copy-all"]["connect"]) == (
        *("payments", False),
        "other",
    )
    text = applied.mm2mgr("who", topic).out
    assert text.splitlines()[0] == "dc1:orders → agg:dc1.orders → dr:agg.dc1.orders"
    assert "other/copy-all" in text
    assert "payments" in text


def test_a_name_counts_where_it_is_and_what_is_missing_is_said(applied: Estate) -> None:
    found = applied.who("orders")
    assert [stop.get("partitions") for stop in found["routes"][0]] == [None, 3, None]
    assert found["unlisted"] == {"dr": "dr: no broker answered"}
    applied.kafka |= {"agg": ["orders"], "dr": []}
    assert sorted(applied.routes("orders")) == [
        "agg:orders > dr:agg.orders",
        "dc1:orders > agg:dc1.orders > dr:agg.dc1.orders",
    ]
    assert "dc1:orders → agg:dc1.orders (not there yet) → dr:" in applied.mm2mgr("who", "orders").out


def test_before_an_apply_the_tree_s_part_is_shown_as_such(estate: Estate) -> None:
    (ours,) = (each for each in estate.who("orders")["connectors"] if each["ours"])
    assert ours["state"] == "not applied"
    estate.main.add(OURS, mirror("dc1", "agg", "orders"))  # without its mark: it counts as of nobody, as it runs
    found = [each for each in estate.who("orders")["connectors"] if each["connector"] == OURS]
    assert [each["state"] for each in found] == ["RUNNING"]


def test_offline_nothing_is_asked(applied: Estate) -> None:
    assert applied.routes("orders", "--offline") == ["dc1:orders > agg:dc1.orders"]
    assert [each["state"] for each in applied.who("orders", "--offline")["connectors"]] == ["declared"]
    assert applied.main.requests == []
    assert applied.other.requests == []


def test_what_nearly_takes_a_topic_is_told_with_the_reason(applied: Estate) -> None:
    applied.other.add("back", mirror("agg", "dc1"))
    applied.kafka["dc1"].append("app.debug.x")
    assert applied.refused("app.debug.x") == {OURS: "excluded by app[.]debug[.].*"}
    assert applied.refused("orders") == {"back": "it has been on 'dc1' before, by its name"}
    assert applied.refused("mm2-offset-syncs.x.internal", "--cluster", "agg") == dict.fromkeys(
        ("back", "copy-all"), r"excluded by mm2.*\.internal"
    )
    text = applied.mm2mgr("who", "app.debug.x").out
    assert "Nothing mirrors app.debug.x" in text
    assert "excluded by app[.]debug[.].*" in text


def test_a_name_on_one_cluster_only(applied: Estate) -> None:
    assert applied.routes("orders", "--cluster", "agg") == ["agg:orders > dr:agg.orders"]
    assert applied.routes("orders", "--cluster", "dr") == []
    assert "did you mean 'agg'" in applied.mm2mgr("who", "orders", "--cluster", "aggg", code=64).err


def test_one_cluster_under_two_aliases_is_one_by_its_address(applied: Estate) -> None:
    foreign = mirror("prod", "agg", "payments", source_cluster_bootstrap_servers="dc1:9092")
    applied.other.add("by-hand", foreign)
    assert applied.routes("payments") == ["dc1:payments > agg:prod.payments > dr:agg.prod.payments"]


def test_where_the_name_is_not_known_the_route_ends_and_says_why(applied: Estate) -> None:
    applied.other.add("odd", mirror("dr", "dc1", "agg[.].*", replication_policy_class="org.example.Policy"))
    applied.other.add("filtered", mirror("dr", "dc1", topic_filter_class="org.example.Filter"))
    found = applied.who("orders")
    assert found["routes"][0][-1]["topic"] is None
    whys = {each["connector"]: each["why"] for each in found["connectors"]}
    assert "replication policy of its own" in whys["odd"]
    assert "filter class of its own" in whys["filtered"]
    assert applied.mm2mgr("who", "orders").out.startswith("dc1:orders → agg:dc1.orders → dr:agg.dc1.orders → dc1:?\n")


def test_a_loop_without_prefixes_ends_where_it_began(applied: Estate) -> None:
    policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    for source, target in (("dc1", "dr"), ("dr", "dc1")):
        applied.other.add(f"{source}-{target}", mirror(source, target, "loop", replication_policy_class=policy))
    routes = applied.routes("loop")
    assert any(route.startswith("dc1:loop > dr:loop > dc1:loop") for route in routes)
    assert all(len(route.split(" > ")) <= 4 for route in routes)


def test_states_of_connectors_that_rest_are_shown(applied: Estate) -> None:
    applied.other.connectors["copy-all"].state = "PAUSED"
    applied.other.add("off", mirror("dc1", "dr", "orders", enabled="false"))
    states = {each["connector"]: each["state"] for each in applied.who("orders")["connectors"]}
    assert states == {OURS: "RUNNING", "copy-all": "PAUSED", "off": "RUNNING, enabled=false"}


def test_a_cluster_that_does_not_answer_leaves_the_rest_and_is_named(applied: Estate) -> None:
    with serving(applied.other) as other, dead_url() as dead:
        applied.declare({"main": dead, "other": other})
        assert applied.routes("orders", code=1) == ["dc1:orders > agg:dc1.orders > dr:agg.dc1.orders"]
        found = applied.who("orders", code=1)
    assert found["unread"].keys() == {"main"}
    assert {each["connector"]: each["state"] for each in found["connectors"]}[OURS] == "unknown"


def test_what_nothing_mirrors(applied: Estate) -> None:
    applied.kafka["dr"] = []
    assert applied.mm2mgr("who", "stock", "--cluster", "dc1").lines == [
        "No cluster has a topic stock.",
        "No flow would select it. To have it mirrored, create it, and add it to `topics` of a flow.",
    ]
    applied.kafka["agg"].append("stock")
    assert applied.mm2mgr("who", "stock", "--cluster", "dc1").lines == ["Nothing mirrors stock."]


# --- topics -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def brokers(mm2mgr: Command, mock_cluster: KafkaAccess) -> Command:
    source, target = addresses(mock_cluster)
    mm2mgr.tree.mkdir()
    (mm2mgr.tree / "tree.yaml").write_text(
        TREE.format(main="http://127.0.0.1:1", other="http://127.0.0.1:2")
        .replace("dc1:9092", source)
        .replace("agg:9092", target)
    )
    for topic in ("orders", "app.web", "app.debug.x", "stock", "dc1.orders"):
        produce(mock_cluster, topic)
    return mm2mgr


def test_the_topics_that_a_flow_takes_now(brokers: Command) -> None:
    (found,) = brokers("topics", "shop", "-o", "json").json
    assert [(each["topic"], each["becomes"], each["partitions_on_target"] > 0) for each in found["topics"]] == [
        ("app.web", "dc1.app.web", False),
        ("orders", "dc1.orders", True),
    ]
    text = brokers("topics", "shop").out
    assert text.startswith("shop:dc1->agg: 2 topics with ")
    assert "not yet" in text


def test_all_topics_with_the_reason_for_those_left_out(brokers: Command) -> None:
    (found,) = brokers("topics", "shop", "--all", "-o", "json").json
    assert {each["topic"]: each["why"] for each in found["topics"]} == {
        "app.debug.x": "excluded by app[.]debug[.].*",
        "app.web": "",
        "dc1.orders": "no pattern of the flow names it",
        "orders": "",
        "stock": "no pattern of the flow names it",
    }
    assert "no pattern of the flow names it" in brokers("topics", "shop", "--all").out


def test_brokers_that_do_not_answer_are_named(brokers: Command, closed_port: int, impatient: None) -> None:
    tree = brokers.tree / "tree.yaml"
    good = tree.read_text()
    source, target = (good.split("bootstrap_servers: ['")[place].split("'")[0] for place in (1, 2))
    tree.write_text(good.replace(target, f"127.0.0.1:{closed_port}"))
    said = brokers("topics", "shop", code=3)
    assert "the topics of 'agg' could not be listed" in said.out
    assert "orders" in said.out
    tree.write_text(good.replace(source, f"127.0.0.1:{closed_port}"))
    assert "the topics of 'dc1' could not be listed" in brokers("topics", "shop", code=1).out


def test_a_topic_that_no_cluster_has_is_said_with_the_nearest(applied: Estate) -> None:
    """A connector may take the name by its pattern all the same."""
    applied.kafka["dr"] = []
    found = applied.who("app.payment")
    assert (found["missing"], found["nearest"]) == (True, ["payments"])
    assert found["connectors"], "a pattern takes it"
    said = applied.mm2mgr("who", "order").lines
    assert said[1:5] == [
        "  If that is meant: mm2mgr who orders",
        "Once agg has a topic order, other/copy-all would mirror it.",
        "To have it mirrored, create it there: the tree needs no change. It would go:",
        "  agg:order → dr:agg.order (not there yet)",
    ]
    would = applied.mm2mgr("who", "app.payment").out
    assert "Once dc1 has a topic app.payment, shop:dc1->agg would mirror it." in would
    assert "Nothing mirrors" not in would
    assert said[0] == "No cluster has a topic order; the nearest: orders, dc1.orders."
    assert applied.who("orders")["missing"] is False
    assert "No cluster" not in applied.mm2mgr("who", "orders").out


def test_a_cluster_that_does_not_answer_may_have_it(applied: Estate) -> None:
    said = applied.mm2mgr("who", "order").lines
    assert said[0] == "No cluster of those that answer has a topic order; the nearest: orders, dc1.orders."
    assert applied.who("order", "--offline")["missing"] is False
