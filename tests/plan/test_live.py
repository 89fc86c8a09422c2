"""Reading live state over real sockets: few requests a cluster, and a failed read is never taken for an empty cluster."""

from __future__ import annotations

from copy import deepcopy

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.json_values import to_json
from mm2mgr.live.endpoints import connect_target
from tests.plan.site import FLOWS, ON_EAST, ON_WEST, Site, actions

VALIDATE = "/connector-plugins/org.apache.kafka.connect.mirror.MirrorSourceConnector/config/validate"


TWO_REQUESTS = [("GET", "/", ""), ("GET", "/connectors", "expand=info&expand=status")]
FOREIGN = {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector", "topics": "orders"}
FOREIGN |= {"source.cluster.alias": "a", "target.cluster.alias": "east", "name": "theirs"}


@pytest.mark.parametrize("runs_too", ["nothing", "a foreign one", "one left over", "a wished state"])
def test_a_plan_without_changes_costs_two_requests_a_cluster(site: Site, runs_too: str) -> None:
    flows = FLOWS
    if runs_too == "a wished state":
        flows = FLOWS.replace("[orders]}", "[orders]}, state: paused")
    site.converge(flows)
    if runs_too == "a foreign one":
        site.east.add("theirs", FOREIGN)
    if runs_too == "one left over":
        flows = flows.replace("sources: [a], targets: [east, west]", "sources: [a], targets: [east]")
    site.forget()
    plan = site.plan(flows)
    assert set(actions(plan).values()) == {"no-op"}
    assert (plan.clusters[0].unowned, plan.left_over) == (
        1 if runs_too == "a foreign one" else 0,
        len(ON_WEST) if runs_too == "one left over" else 0,
    )
    for fake in site.fakes.values():
        assert sorted((request.method, request.path, request.query) for request in fake.requests) == TWO_REQUESTS
        assert fake.writes == []


def test_a_connector_without_a_status_is_not_created_a_second_time(site: Site) -> None:
    site.converge()
    for connector in site.east.connectors.values():
        connector.hidden_reads = 100
    site.forget()
    assert set(actions(site.plan()).values()) == {"no-op"}
    assert [request.query for request in site.east.requests if request.path == "/connectors"] == [
        "expand=info&expand=status",
        "expand=info",
    ]


def test_what_another_cluster_mirrored_is_known_although_it_shows_no_status(site: Site) -> None:
    site.converge()
    for connector in site.west.connectors.values():
        connector.hidden_reads = 100
    plan = site.plan(FLOWS.replace("logs:", "renamed:"))
    assert actions(plan)["mm2.a.west.source.renamed"] == "blocked"


@pytest.mark.parametrize("path", ["/", "/connector-plugins"])
def test_a_cluster_whose_workers_say_nothing_of_themselves_is_not_planned(site: Site, path: str) -> None:
    site.east.answer_only(path, 500)
    east, west = site.plan().clusters
    assert east.error
    assert "scripted 500" in east.error
    assert (east.changes, len(west.changes)) == ((), len(ON_WEST))


def test_what_would_be_created_where(site: Site) -> None:
    plan = site.plan()
    assert [(part.connect, [change.connector for change in part.changes]) for part in plan.clusters] == [
        ("east", ON_EAST),
        ("west", ON_WEST),
    ]
    assert set(actions(plan).values()) == {"create"}
    assert not plan.has_failed


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_cluster_that_cannot_be_read_gets_no_create_and_the_other_is_planned(site: Site, status: int) -> None:
    site.east.fail_next("GET", "/connectors", status, times=1000)
    plan = site.plan()
    east, west = plan.clusters
    assert east.error
    assert "'east'" in east.error
    assert east.hint
    assert east.changes == ()
    assert [change.action for change in west.changes] == ["create"] * len(ON_WEST)
    assert plan.has_failed
    assert to_json(plan)["clusters"][0]["error"] == east.error


def test_a_cluster_that_is_down_or_answers_nonsense(site: Site) -> None:
    site.urls["east"] = "http://127.0.0.1:1"
    site.west.fail_next("GET", "/connectors", 200, b"<html>welcome</html>", times=1000)
    plan = site.plan()
    assert all(part.error and not part.changes for part in plan.clusters)
    assert "no URL answered" in str(plan.clusters[0].error)


def test_a_cluster_that_is_busy_for_a_moment_is_read_in_the_end(site: Site) -> None:
    site.east.fail_next("GET", "/connectors", 503, times=2)
    assert not site.plan().has_failed


def test_only_limits_the_plan_to_connectors_that_serve_these_flows(site: Site) -> None:
    site.converge()
    site.east.connectors.clear()
    site.forget()
    plan = site.plan(only=["orders:a->east"])
    assert list(actions(plan)) == [name for name in ON_EAST if not name.endswith("logs")]
    assert {(r.path, r.query) for r in site.west.requests} == {  # read, lest its connectors mirror the same already
        ("/", ""),
        ("/connectors", "expand=info&expand=status"),
        ("/connectors", "expand=info"),
    }
    assert plan.clusters[0].left_over == ()


def test_only_never_deletes(site: Site) -> None:
    site.converge()
    fewer = FLOWS.replace("targets: [east, west]", "targets: [west]")
    assert "delete" in actions(site.plan(fewer, prune=True)).values()
    assert "delete" not in actions(site.plan(fewer, prune=True, only=["orders:a->east"])).values()


def test_what_is_left_over_is_named(site: Site) -> None:
    site.converge()
    plan = site.plan(FLOWS.replace("targets: [east, west]", "targets: [west]"))
    assert plan.clusters[0].left_over == ("mm2.a.east.source.logs",)
    assert actions(plan)["mm2.a.east.checkpoint"] == "update"  # it served both flows


def test_credentials_are_resolved_on_the_way_to_the_client(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE_TOKEN", "t0ken-t0ken")
    shared = "defaults: {connect: {auth: {bearer: '${env:SITE_TOKEN}'}}}\n"
    plan = site.plan(FLOWS + shared)
    assert not plan.has_failed
    assert site.east.requests[0].headers["authorization"] == "Bearer t0ken-t0ken"
    target = connect_target(site.declare(FLOWS + shared)[0].connects["east"])
    assert "t0ken" not in repr(target)


def test_credentials_that_are_missing_fail_the_plan_by_name(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SITE_NO_TOKEN", raising=False)
    text = FLOWS + "defaults: {connect: {auth: {bearer: '${env:SITE_NO_TOKEN}'}}}\n"
    with pytest.raises(Mm2mgrError, match="SITE_NO_TOKEN"):
        connect_target(site.declare(text)[0].connects["east"])
    assert all("SITE_NO_TOKEN" in str(part.error) for part in site.plan(text).clusters)
    assert not site.east.requests


ORDERS = "mm2.a.east.source.orders"


def with_transform(kind: str) -> str:
    settings = (
        f"{{transforms: t, transforms.t.type: {kind}, transforms.t.headers: h, no.such.secret: '${{file:/x:y}}'}}"
    )
    silence = "silence: {transform-renames: a test}"
    return FLOWS.replace("[orders]}", f"[orders]}}, source_connector: {settings}, {silence}")


def test_what_the_workers_would_refuse_is_blocked_with_its_reason_and_place(site: Site) -> None:
    site.fakes["east"].lists_all = False  # else lint finds it in the list
    plan = site.plan(with_transform("com.missing.Nope"))
    blocked = {change.connector: change for change in plan.changes if change.action == "blocked"}
    key = "transforms.t.type"
    reason = f"refused-by-workers: {key}: Invalid value com.missing.Nope for configuration {key}: Class com.missing.Nope could not be found"
    assert blocked[ORDERS].reason == reason
    assert blocked[ORDERS].remedy.startswith(f"correct {key} (")
    assert "x.yaml:11)" in blocked[ORDERS].remedy
    assert blocked.keys() == {ORDERS}
    assert site.fakes["east"].writes == []
    assert set(actions(site.plan(with_transform("org.apache.kafka.connect.transforms.DropHeaders"))).values()) == {
        "create"
    }


def test_a_class_that_workers_do_not_list_is_blocked_without_a_validation(site: Site) -> None:
    plan = site.plan(with_transform("com.missing.Nope"))
    blocked = {change.connector: change for change in plan.changes if change.action == "blocked"}
    reason = "class-refused: transforms.t.type=com.missing.Nope: it is not on the workers, which list no such transformation: Connect refuses the config"
    assert blocked[ORDERS].reason == reason
    assert not any("com.missing.Nope" in str(request.body) for request in site.fakes["east"].requests)
    assert set(actions(site.plan(with_transform("com.acme.Sieve"))).values()) == {"create"}


def test_a_refusal_of_one_connector_holds_what_hangs_on_it(site: Site) -> None:
    """The flow's successor is refused, so what it takes over from stays."""
    site.converge()
    renamed = (
        with_transform("com.missing.Nope").replace("orders:", "renamed:")
        + "moved: [{from: 'orders:a->east', to: 'renamed:a->east'}]\n"
    )
    plan = site.plan(renamed, prune=True)
    assert actions(plan)["mm2.a.east.source.renamed"] == "blocked"
    assert actions(plan)[ORDERS] == "blocked"


def test_placeholders_are_never_sent_to_be_validated(site: Site) -> None:
    site.plan(with_transform("org.apache.kafka.connect.transforms.DropHeaders"))
    sent = [request.body for request in site.east.requests if request.path.endswith("/validate")]
    assert len(sent) > len(ON_EAST)  # each connector, and the probe for the policy
    assert not [body for body in sent if "${" in str(body)]


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [(403, "no", "create"), (500, "org.apache.kafka.common.config.ConfigException: Invalid value soon", "blocked")],
)
def test_a_validation_that_does_not_answer_is_noted_and_one_that_breaks_off_is_a_refusal(
    site: Site, status: int, body: str, expected: str
) -> None:
    path = "/connector-plugins/org.apache.kafka.connect.mirror.MirrorHeartbeatConnector"
    site.east.fail_next("PUT", path, status, body, times=9)
    plan = site.plan()
    assert actions(plan)["mm2.a.east.heartbeat"] == expected
    (east,) = (part for part in plan.clusters if part.connect == "east")
    noted = [note for note in east.notes if "whether the workers accept the config of 'mm2.a.east.heartbeat'" in note]
    assert len(noted) == (1 if expected == "create" else 0)


def test_two_names_of_one_connect_cluster_are_not_planned(site: Site) -> None:
    """A plan of one would delete, with --prune, what the other created."""
    site.converge()
    site.west.connectors, site.west.cluster_id = site.east.connectors, site.east.cluster_id
    site.forget()
    plan = site.plan(prune=True)
    for part, other in zip(plan.clusters, ("west", "east"), strict=True):
        assert part.changes == ()
        assert f"'{part.connect}' and '{other}' run the same {len(ON_EAST)} connectors" in (part.error or "")
        assert "config.storage.topic" in (part.error or "")
        assert "group.id and three storage topics" in (part.hint or "")
    assert all(fake.writes == [] for fake in site.fakes.values())


@pytest.mark.parametrize("differs", ["kafka", "config", "state", "all stopped"])
def test_connect_clusters_that_run_much_the_same_are_planned(differs: str, site: Site) -> None:
    site.converge()
    site.west.connectors = deepcopy(site.east.connectors)
    site.west.cluster_id = "another" if differs == "kafka" else site.east.cluster_id
    first = site.west.connectors[ON_EAST[0]]
    if differs == "config":
        first.config["tasks.max"] = "9"
    for connector in {"state": [first], "all stopped": [*site.west.connectors.values()]}.get(differs, []):
        connector.state = "STOPPED"
    if differs == "all stopped":
        for connector in site.east.connectors.values():
            connector.state = "STOPPED"
    assert [part.error for part in site.plan().clusters] == [None, None]
