"""What flows, links and Connect clusters of one estate may not say beside each other."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def flow(name: str, ends: str, include: str, more: str = "") -> str:
    """One flow on one line; `more` starts with a comma."""
    source, target = ends.split("->")
    return f"flows: {{{name}: {{sources: [{source}], targets: [{target}], topics: {{include: [{include}]}}{more}}}}}\n"


# --- topics that go round or arrive twice -----------------------------------------------------------------------------

IDENTITY = ", replication_policy: identity"
BY_CLASS = ", replication_policy: org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


@pytest.mark.parametrize(
    ("there", "back", "fine"),
    [
        ("orders", "stock", True),
        ("orders, a.b", "stock, a-b", True),
        ("orders", "stock, orders", False),
        ("orders", "st.*", False),  # who knows what it matches tomorrow
        ("'.*'", "stock", False),
    ],
)
@pytest.mark.parametrize("policy", [IDENTITY, BY_CLASS])
def test_topics_that_keep_their_names_go_one_way(
    tmp_path: Path, there: str, back: str, fine: bool, policy: str
) -> None:
    files = {"x": BASE, "y": flow("f", "a->b", there, policy), "z": flow("g", "b->a", back, IDENTITY)}
    if fine:
        assert len(expanded(tmp_path, **files).flows) == 2
    else:
        found = complaint(tmp_path, **files)
        assert "flows 'f' (a->b) and 'g' (b->a) keep topic names both ways" in found
        assert found.startswith("z.yaml:1:")
        assert "write replication_policy: default" in found


def test_one_flow_that_keeps_names_both_ways(tmp_path: Path) -> None:
    text = f"flows: {{f: {{sources: [a, b], targets: [a, b], except: [a->a, b->b], topics: {{include: [t]}}{IDENTITY}}}}}\n"
    assert "flows 'f' (b->a) and 'f' (a->b) keep topic names both ways" in complaint(tmp_path, x=BASE, y=text)
    assert len(expanded(tmp_path, y=text.replace(IDENTITY, "")).flows) == 2


def test_one_separator_in_the_estate(tmp_path: Path) -> None:
    other = flow("g", "b->a", "t", ", separator: _")
    found = complaint(tmp_path, x=BASE, y=flow("f", "a->b", "t"), z=other)
    assert found.startswith("z.yaml:1:65: flow 'g' has the separator '_' and flow 'f' has '.': ")
    assert len(expanded(tmp_path, z=other.replace("}}\n", f"{IDENTITY}}}}}\n")).flows) == 2


@pytest.mark.parametrize("include", ["t", "u, 'x.*'", "u, t"])
def test_two_flows_of_a_pair_include_different_patterns(tmp_path: Path, include: str) -> None:
    found = complaints(tmp_path, x=BASE, y=flow("f", "a->b", "t, 'x.*'"), z=flow("g", "a->b", include))
    assert [one.split(": ", 1)[1] for one in found] == [
        f"flows 'g' and 'f' share the pair a->b and both include '{include.rsplit(maxsplit=1)[-1].strip(chr(39))}': "
        "its records would be mirrored twice; take it out of one"
    ]
    assert len(expanded(tmp_path, z=flow("g", "a->c", include, ", run_on: on-b")).flows) == 2


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
def test_what_lands_on_a_shared_connector_is_said_alike(tmp_path: Path, setting: str, shared: str, key: str) -> None:
    one = flow("f", "a->b", "t")
    found = complaint(tmp_path, x=BASE, y=one, z=flow("g", "a->b", "u", f", {setting}"))
    assert found.startswith("z.yaml:1:")
    assert found.split(": ", 1)[1] == (
        f"flows 'g' and 'f' share the {shared} connector of a->b and must have the same {key}: "
        "write it in both flows or under defaults:"
    )
    assert len(expanded(tmp_path, y=one.replace("}}\n", f", {setting}}}}}\n")).flows) == 2
    alone = {"z": flow("g", "a->b", "u", f", {setting}"), "y": flow("f", "a->b", "t", f", {shared}s: false")}
    assert len(expanded(tmp_path, **alone).flows) == 2


def test_the_admin_client_of_the_source_serves_both_shared_connectors(tmp_path: Path) -> None:
    found = complaints(
        tmp_path, x=BASE, y=flow("f", "a->b", "t"), z=flow("g", "a->b", "u", ", source_admin: {retries: 5}")
    )
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
