"""What flows, links and Connect clusters of one estate may not say beside each other."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import pytest

from mm2mgr.render import render
from mm2mgr.spec.models import FlowSettings, Topics
from tests.spec.trees import complaint, complaints, expanded

BASE = """\
owner: team
clusters:
  a: {bootstrap_servers: [a1:9092]}
  b: {bootstrap_servers: [b1:9092]}
  c: {bootstrap_servers: [c1:9092]}
connect:
  on-a: {url: "http://a:8083", kafka: a}
  on-b: {url: "http://b:8083", kafka: b}
"""


DEFAULTS = FlowSettings(topics=Topics(include=["t"]))


def flow(name: str, ends: str, include: str, more: str = "") -> str:
    """One flow on one line; `more` starts with a comma."""
    source, target = ends.split("->")
    return f"flows: {{{name}: {{sources: [{source}], targets: [{target}], topics: {{include: [{include}]}}{more}}}}}\n"


# --- connectors that flows share --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "shared", "key"),
    [
        ("checkpoints: {interval: 9s}", "checkpoint", "checkpoints.interval"),
        ("checkpoints: {group_offsets: true}", "checkpoint", "checkpoints.group_offsets"),
        ("checkpoint_connector: {offset.lag.max: 5}", "checkpoint", "checkpoint_connector"),
        ("target_consumer: {fetch.max.bytes: 5}", "checkpoint", "target_consumer"),
        ("target_admin: {retries: 5}", "checkpoint", "target_admin"),
        ("refresh_interval: 5min", "checkpoint", "refresh_interval"),
        ("heartbeats: {interval: 9s}", "heartbeat", "heartbeats.interval"),
        ("heartbeat_connector: {some.key: 5}", "heartbeat", "heartbeat_connector"),
    ],
)
def test_what_one_flow_says_of_a_shared_connector_holds_for_the_pair(
    tmp_path: Path, setting: str, shared: str, key: str
) -> None:
    silent, speaking = flow("f", "a->b", "t"), flow("g", "a->b", "u", f", {setting}")
    topology = expanded(tmp_path, x=BASE, y=silent, z=speaking)
    both = expanded(tmp_path, y=flow("f", "a->b", "t", f", {setting}"))
    assert [one.settings for one in topology.flows] == [one.settings for one in both.flows]
    configs = [{one.name: one.config for one in render(made)} for made in (topology, both)]
    assert configs[0] == configs[1]
    (line,) = [one for one in render(topology) if one.type == shared]
    assert any(str(origin.where).endswith("z.yaml:1") for origin in line.origins.values()), (
        "it is explained by its line"
    )
    alone = {"z": speaking, "y": flow("f", "a->b", "t", f", {shared}s: false")}
    off = {one.name: one for one in expanded(tmp_path, **alone).flows}
    value = attrgetter(key)
    assert value(off["f"].settings) == value(DEFAULTS), (
        "a flow without such a connector says nothing of it, nor takes it"
    )
    assert not getattr(off["f"].settings, f"{shared}s").enabled


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            ("checkpoints: {interval: 9s}", "checkpoints: {interval: 5s}"),
            "flows 'f', 'g' share the checkpoint connector of a->b, which has one checkpoints.interval: 'f' says"
            " checkpoints: {interval: 9s} and 'g' says checkpoints: {interval: 5s}; write it in one of them alone: flows:"
            " {f: {checkpoints: {interval: 9s}}}",
        ),
        (
            ("failover: true", "failover: false"),
            "flows 'f', 'g' share the pair a->b, which has one failover: 'f' says failover: true and 'g' says failover:"
            " false; write it in one of them alone: flows: {f: {failover: true}}",
        ),
        (
            ("", "separator: _"),
            "flows 'f', 'g' share the pair a->b, which has one separator: 'f' says nothing and 'g' says separator: _;"
            " write it in all of them: flows: {f: {separator: _}, g: {separator: _}}, or in none",
        ),
    ],
)
def test_a_contradiction_is_one_sentence_with_what_to_write(
    tmp_path: Path, settings: tuple[str, str], says: str
) -> None:
    first, second = (f", {setting}" if setting else "" for setting in settings)
    found = complaint(tmp_path, x=BASE, y=flow("f", "a->b", "t", first), z=flow("g", "a->b", "u", second))
    assert found.startswith("z.yaml:1:")
    assert found.split(": ", 1)[1] == says
    third = flow("h", "a->b", "v")
    if first:
        assert len(complaints(tmp_path, w=third)) == 1, "who says nothing is not blamed"
    wide = {
        name: text.replace("targets: [b]", "targets: [b, a]").replace("sources: [a]", "sources: [a, b]")
        for name, text in (("y", flow("f", "a->b", "t", first)), ("z", flow("g", "a->b", "u", second)))
    }
    wide = {name: text.replace("topics:", "except: [a->a, b->b], topics:") for name, text in wide.items()}
    (tmp_path / "w.yaml").unlink(missing_ok=True)
    assert "a->b and 1 more, which has" in complaint(tmp_path, **wide).replace("b->a and 1 more", "a->b and 1 more")


def test_what_a_second_flow_adds_to_a_setting_of_keys_is_for_both(tmp_path: Path) -> None:
    topology = expanded(
        tmp_path, x=BASE,
        y=flow("f", "a->b", "t", ", target_consumer: {fetch.max.bytes: 5}"),
        z=flow("g", "a->b", "u", ", target_consumer: {max.poll.records: 7}"),
    )  # fmt: skip
    assert [one.settings.target_consumer for one in topology.flows] == [
        {"fetch.max.bytes": "5", "max.poll.records": "7"}
    ] * 2


def test_a_contradiction_shows_no_secret(tmp_path: Path) -> None:
    jaas = 'target_consumer: {{sasl.jaas.config: "x required password=\\"{}\\";"}}'
    texts = (", " + jaas.format("pa55-one"), ", " + jaas.format("pa55-two"))
    found = complaint(tmp_path, x=BASE, y=flow("f", "a->b", "t", texts[0]), z=flow("g", "a->b", "u", texts[1]))
    assert "which has one target_consumer" in found
    assert "pa55" not in found


def test_the_admin_client_of_the_source_serves_both_shared_connectors(tmp_path: Path) -> None:
    topology = expanded(
        tmp_path, x=BASE, y=flow("f", "a->b", "t"), z=flow("g", "a->b", "u", ", source_admin: {retries: 5}")
    )
    assert [one.settings.source_admin for one in topology.flows] == [{"retries": "5"}] * 2
    found = complaints(tmp_path, y=flow("f", "a->b", "t", ", source_admin: {retries: 6}"))
    assert [one.split(" share the ")[1].split()[0] for one in found] == ["checkpoint", "heartbeat"]


# --- one thing under two names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["http://a:8083/", "http://A:8083", "[http://z:8083, http://a:8083]"])
def test_one_connect_cluster_has_one_name(tmp_path: Path, url: str) -> None:
    text = BASE.replace('"http://b:8083"', url)
    found = complaint(tmp_path, x=text)
    assert found.startswith("x.yaml:8:10: 'on-b' and 'on-a' share the URL http://")
    assert found.endswith("one Connect cluster must have one name")


@pytest.mark.parametrize(
    ("between", "says"),
    [
        ("[b, a]", "x.yaml:11:5: a second link between 'b' and 'a'; the first is at x.yaml:10:5: keep one"),
        ("[c, c]", "x.yaml:11:5: a link from 'c' to itself: name two clusters"),
    ],
)
def test_links_join_two_clusters_once(tmp_path: Path, between: str, says: str) -> None:
    text = f"{BASE}links:\n  - {{between: [a, b], rtt: 1ms}}\n  - {{between: {between}, rtt: 2ms}}\n"
    assert complaint(tmp_path, x=text).replace(f"{tmp_path}/", "") == says
