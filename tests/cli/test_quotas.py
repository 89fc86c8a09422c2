"""Catch-up limits as client quotas: planned, applied, drifted and pruned, on fake Connect clusters and a fake broker with quotas."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from mm2mgr.errors import SpecError
from tests.kafka.quota_broker import QuotaBroker, of_client, serving_quotas
from tests.plan.site import ON_EAST, Site

from .command import Command

ORDERS, PAIR = "mm2mgr.team/orders:a->east", "mm2mgr.team/a->east"
SOURCE, SHARED = "mm2.a.east.source.orders", "mm2.a.east.source.logs"
FOREIGN = {
    of_client("web"): {"producer_byte_rate": 1e6},
    of_client("mm2mgr.team.b/orders:a->east"): {"producer_byte_rate": 2e6},  # of owner team.b
    of_client("mm2mgr.other/orders:a->east"): {"producer_byte_rate": 3e6},
    of_client("", "anna"): {"producer_byte_rate": 4e6},
}


def declare(site: Site, orders: str = "", link: str = "", flows: str = "", login: str = "") -> None:
    """Write the tree: flows orders and logs from `a` to `east`, with more settings of orders; the brokers keep no history."""
    both = f"""\
links: [{{between: [a, east], rtt: 80ms{link}}}]
flows:
  orders: {{sources: [a], targets: [east], topics: {{include: [orders]}}{orders}}}
  logs: {{sources: [a], targets: [east], topics: {{include: [logs]}}}}
"""
    site.declare(flows or both)
    (file,) = site.folder.rglob("*.yaml")
    text = file.read_text().replace("history: true", "history: false")
    file.write_text(text.replace("cluster_id: east}", f"cluster_id: east{login}}}"))


LIMIT = ", catch_up: {limit: 30MB/s}"


@pytest.fixture
def broker(site: Site) -> Iterator[QuotaBroker]:
    """The brokers of `east`, on which others have quotas too."""
    with serving_quotas(QuotaBroker(quotas={parts: dict(values) for parts, values in FOREIGN.items()})) as broker:
        site.brokers["east"] = broker.address
        declare(site, LIMIT)
        yield broker
        assert broker.quotas.items() >= FOREIGN.items(), "a quota of somebody else was touched"


def ours(broker: QuotaBroker) -> dict[object, float]:
    return {parts: rate for parts, rate in broker.rates().items() if parts not in FOREIGN}


def test_a_limit_is_planned_applied_and_then_unchanged(site: Site, broker: QuotaBroker, mm2mgr: Command) -> None:
    shown = mm2mgr("plan").out
    assert "Client quotas on Kafka cluster east\n" in shown
    assert f"+ create  client id {ORDERS}  30 MB/s over 3 brokers: 10 MB/s each" in shown
    assert "; client quotas: 1 to create" in shown
    assert ours(broker) == {}
    said = mm2mgr("apply", "--yes")
    assert f"east: created quota of client id {ORDERS}" in said.err
    assert f"Applied: {len(ON_EAST)} of {len(ON_EAST)} changes, 1 of 1 client quota\n" in said.out
    assert ours(broker) == {of_client(ORDERS): 10e6}
    assert site.east.connectors[SOURCE].config["producer.override.client.id"] == ORDERS
    assert "producer.override.client.id" not in site.east.connectors[SHARED].config
    assert "  = 1 unchanged" in mm2mgr("plan", "--detailed-exitcode").out
    assert "Drift: none" in mm2mgr("drift").out


def test_another_limit_or_number_of_brokers_writes_only_the_quota(
    site: Site, broker: QuotaBroker, mm2mgr: Command
) -> None:
    mm2mgr("apply", "--yes")
    site.forget()
    declare(site, ", catch_up: {limit: 60MB/s}")
    assert f"~ update  client id {ORDERS}  60 MB/s over 3 brokers: 10 MB/s -> 20 MB/s each" in mm2mgr("plan").out
    mm2mgr("plan", "--detailed-exitcode", code=2)
    mm2mgr("apply", "--yes")
    broker.brokers = 4
    mm2mgr("apply", "--yes")
    assert ours(broker) == {of_client(ORDERS): 15e6}
    assert site.east.writes == []


def test_a_limit_of_a_link_is_shared_by_its_flows_but_for_those_with_their_own(
    site: Site, broker: QuotaBroker, mm2mgr: Command
) -> None:
    declare(site, link=LIMIT)
    mm2mgr("apply", "--yes")
    assert ours(broker) == {of_client(PAIR): 10e6}
    configs = [site.east.connectors[name].config["producer.override.client.id"] for name in (SOURCE, SHARED)]
    assert configs == [PAIR, PAIR]
    declare(site, ", catch_up: {limit: 3MB/s}", link=LIMIT)
    mm2mgr("apply", "--yes")
    assert ours(broker) == {of_client(PAIR): 10e6, of_client(ORDERS): 1e6}


def test_a_limit_that_leaves_the_tree_takes_its_quota_along(site: Site, broker: QuotaBroker, mm2mgr: Command) -> None:
    mm2mgr("apply", "--yes")
    declare(site)
    shown = mm2mgr("plan").out
    assert f"- delete  client id {ORDERS}  no connector has its client id any more" in shown
    said = mm2mgr("apply", "--yes")
    assert said.err.index(f"updated {SOURCE}") < said.err.index("deleted quota"), "it goes after its connector"
    assert ours(broker) == {}
    broker.asked.clear()
    assert "Client quotas" not in mm2mgr("plan").out
    assert broker.asked == [], "a tree without limits asks no broker for quotas"


def test_the_quota_of_a_flow_that_is_gone_stays_until_its_connector_is_pruned(
    site: Site, broker: QuotaBroker, mm2mgr: Command
) -> None:
    mm2mgr("apply", "--yes")
    declare(site, flows="flows:\n  logs: {sources: [a], targets: [east], topics: {include: [logs]}}\n")
    assert "to delete client" not in mm2mgr("plan").out
    mm2mgr("apply", "--yes")
    assert ours(broker) == {of_client(ORDERS): 10e6}
    assert f"- delete  client id {ORDERS}" in mm2mgr("plan", "--prune").out
    mm2mgr("apply", "--yes", "--prune")
    assert SOURCE not in site.east.connectors
    assert ours(broker) == {}


def test_a_plan_of_one_flow_leaves_the_quotas_of_others(site: Site, broker: QuotaBroker, mm2mgr: Command) -> None:
    declare(site, LIMIT)
    mm2mgr("apply", "--yes")
    broker.set(7e6, PAIR)  # left behind
    declare(site)
    shown = mm2mgr("plan", "logs", "-o", "json").json
    assert shown["quotas"] == []
    shown = mm2mgr("plan", "orders", "-o", "json").json
    assert [(each["client_id"], each["action"]) for each in shown["quotas"]] == [(ORDERS, "delete")]


def test_a_quota_that_cannot_be_read_is_neither_created_nor_deleted(
    site: Site, broker: QuotaBroker, mm2mgr: Command
) -> None:
    broker.unreadable = (31, None)
    said = mm2mgr("plan", code=1)
    assert f"! blocked client id {ORDERS}  quotas could not be read: east: reading client quotas failed" in said.out
    said = mm2mgr("apply", "--yes", code=1)
    assert SOURCE in site.east.connectors, "its connectors do not wait for it"
    assert ours(broker) == {}
    broker.unreadable = (0, None)
    mm2mgr("apply", "--yes")
    broker.unreadable = (31, None)
    declare(site)
    assert f"! blocked client id {ORDERS}" in mm2mgr("apply", "--yes", code=1).out
    assert ours(broker) == {of_client(ORDERS): 10e6}


def test_a_connect_cluster_that_cannot_be_read_keeps_quotas(site: Site, broker: QuotaBroker, mm2mgr: Command) -> None:
    mm2mgr("apply", "--yes")
    broker.set(7e6, PAIR)
    site.west.fail_next("GET", "/connectors", status=401, times=1000)
    declare(site, LIMIT)
    assert [each["action"] for each in mm2mgr("plan", "-o", "json", code=1).json["quotas"]] == ["no-op"]


def test_a_refused_write_is_named_and_ends_with_exit_code_1(site: Site, broker: QuotaBroker, mm2mgr: Command) -> None:
    broker.refuse = (31, None)
    said = mm2mgr("apply", "--yes", code=1)
    assert f"failed: create of the quota of client id {ORDERS}: east: this login may not do that" in said.out
    assert "AlterConfigs" in said.out
    assert "0 of 1 client quota" in said.out
    assert SOURCE in site.east.connectors
    broker.refuse = (0, None)
    mm2mgr("apply", "--yes")
    assert ours(broker) == {of_client(ORDERS): 10e6}


def test_a_quota_stays_where_its_connector_could_not_be_written(
    site: Site, broker: QuotaBroker, mm2mgr: Command
) -> None:
    mm2mgr("apply", "--yes")
    declare(site)
    site.east.fail_next("PUT", f"/connectors/{SOURCE}/config", status=500, times=1000)
    said = mm2mgr("apply", "--yes", code=1)
    assert f"kept: connector {SOURCE}, which has its client id, was not written" in said.out
    assert ours(broker) == {of_client(ORDERS): 10e6}


def test_what_was_changed_by_hand_is_drift_and_is_set_back(site: Site, broker: QuotaBroker, mm2mgr: Command) -> None:
    mm2mgr("apply", "--yes")
    broker.set(5e6, ORDERS)
    said = mm2mgr("drift", code=2)
    assert f"east: quota of client id {ORDERS}: 10 MB/s -> 5 MB/s on each broker  (compared with the tree)" in said.out
    assert "Drift: 1 client quota changed by hand" in said.out
    (one,) = mm2mgr("drift", "-o", "json", code=2).json["quotas"]
    assert (one["applied"], one["live"], one["flows"]) == (10e6, 5e6, ["orders:a->east"])
    del broker.quotas[of_client(ORDERS)]
    assert "10 MB/s -> (not set)" in mm2mgr("drift", code=2).out
    mm2mgr("apply", "--yes")
    assert ours(broker) == {of_client(ORDERS): 10e6}
    broker.unreadable = (31, None)
    unread = mm2mgr("drift", code=1)
    assert "! client quotas on Kafka cluster east: " in unread.out
    assert unread.lines[-1] == "Drift: none seen; quotas of 1 Kafka cluster could not be read", "not that there is none"


def test_a_reviewed_plan_is_stale_when_its_quotas_changed(site: Site, broker: QuotaBroker, mm2mgr: Command) -> None:
    mm2mgr("plan", "--out", "plan.json")
    broker.set(1e6, ORDERS)
    said = mm2mgr("apply", "plan.json", code=1)
    assert f"the plan is stale: east: the quota of client id {ORDERS} is not as reviewed" in said.err
    assert site.east.writes == []
    broker.set(10e6, ORDERS)  # what the plan says has been done
    mm2mgr("apply", "plan.json")


def test_a_reviewed_plan_writes_no_quota_that_could_not_be_read_then(
    site: Site, broker: QuotaBroker, mm2mgr: Command
) -> None:
    broker.unreadable = (31, None)
    mm2mgr("plan", "--out", "plan.json", code=1)
    broker.unreadable = (0, None)
    mm2mgr("apply", "plan.json", code=1)
    assert ours(broker) == {}


def test_more_changes_than_meant_hold_quotas_too(site: Site, broker: QuotaBroker, mm2mgr: Command) -> None:
    said = mm2mgr("apply", "--yes", "--max-changes", str(len(ON_EAST)), code=1)
    assert f"too many changes: {len(ON_EAST) + 1}" in said.out
    assert ours(broker) == {}


LOGIN = (
    ", security: {protocol: SASL_PLAINTEXT, sasl.mechanism: SCRAM-SHA-512, sasl.jaas.config: "
    '\'org.apache.kafka.common.security.scram.ScramLoginModule required username="USER" password="${env:SECRET}";\'}, '
    "access: {security: {}}"
)


def test_a_login_of_the_connector_makes_the_quota_one_of_its_user(
    site: Site, broker: QuotaBroker, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR_USER", "mirror")
    flow = f"flows:\n  orders: {{sources: [a], targets: [east], topics: {{include: [orders]}}, run_on: west{LIMIT}}}\n"
    declare(site, flows=flow, login=LOGIN.replace("USER", "${env:MIRROR_USER}"))
    mm2mgr("apply", "--yes")
    assert ours(broker) == {of_client(ORDERS, "mirror"): 10e6}
    monkeypatch.delenv("MIRROR_USER")
    shown = mm2mgr("plan").out
    assert f"+ create  client id {ORDERS}  30 MB/s" in shown
    assert f"- delete  client id {ORDERS}, user mirror  the login is another one" in shown
    assert "? it is for the client id alone: east: ${env:MIRROR_USER} has no value on this machine" in shown


def test_a_quota_of_users_that_kafka_prefers_is_told(site: Site, broker: QuotaBroker, mm2mgr: Command) -> None:
    broker.quotas[(("user", None),)] = {"producer_byte_rate": 5e6}
    assert "? Kafka prefers the quota of user <default>, so this one has no effect" in mm2mgr("plan").out


def test_quotas_are_in_every_form_of_a_plan_and_in_the_events(site: Site, broker: QuotaBroker, mm2mgr: Command) -> None:
    (quota,) = mm2mgr("plan", "-o", "json").json["quotas"]
    assert quota == {
        "kafka": "east",
        "client_id": ORDERS,
        "user": None,
        "action": "create",
        "before": None,
        "after": 10_000_000,
        "bytes_per_second": 30e6,
        "brokers": 3,
        "flows": ["orders:a->east"],
        "reason": "",
        "remedy": "",
        "notes": [],
    }
    markdown = mm2mgr("plan", "-o", "markdown").out
    assert "#### Client quotas" in markdown
    assert "| create | 30 MB/s over 3 brokers: 10 MB/s each |" in markdown
    applied = mm2mgr("apply", "--yes", "--events", "events.jsonl", "-o", "json").json
    assert [(each["client_id"], each["ok"]) for each in applied["quotas"]] == [(ORDERS, True)]
    events = [json.loads(line) for line in (mm2mgr.folder / "events.jsonl").read_text().splitlines()]
    (written,) = (each for each in events if each["event"] == "quota_result")
    assert (written["kafka"], written["after"], written["ok"]) == ("east", 10_000_000, True)


def test_reconcile_repairs_a_quota(site: Site, broker: QuotaBroker, mm2mgr: Command) -> None:
    mm2mgr("apply", "--yes")
    broker.set(5e6, ORDERS)
    shown = mm2mgr("reconcile", "--once", "--report-only", "-o", "json", code=2).json
    assert [(each["client_id"], each["action"]) for each in shown["quotas"]] == [(ORDERS, "update")]


def test_explain_names_the_limit_and_who_shares_it(site: Site, broker: QuotaBroker, mm2mgr: Command) -> None:
    declare(site, LIMIT, link=", catch_up: {limit: 60MB/s}")
    assert "  catch-up limit of 30 MB/s, shared by all tasks of this flow\n" in mm2mgr("explain", "orders").out
    shared = "catch-up limit of 60 MB/s, shared by all flows a->east without a limit of their own"
    assert f"  {shared}\n" in mm2mgr("explain", "logs").out
    assert f"; {shared}.\n" in mm2mgr("link", "explain", "logs").out
    assert broker.asked == []


def test_a_client_id_by_hand_and_a_limit_contradict(site: Site, broker: QuotaBroker, mm2mgr: Command) -> None:
    with pytest.raises(SpecError):  # the site expands what it writes
        declare(site, f"{LIMIT}, record_producer: {{client.id: mine}}")
    said = mm2mgr("render", code=1)
    assert "x.yaml:" in said.err
    assert "the catch-up limit of flow 'orders' counts a client.id that mm2mgr writes" in said.err
