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
        "set it in both flows or under defaults:"
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
