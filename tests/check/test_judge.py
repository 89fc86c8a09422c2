"""What answers mean: the brokers' word first, then ACLs, then what Describe gives away, and otherwise an honest `unknown`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mm2mgr.assignment_text import PLUGIN_CLASS
from mm2mgr.check.judge import CheckRow, Session, differing_rows, judge_rights
from mm2mgr.check.needs import RequiredRight
from mm2mgr.connect.types import PluginsOfWorker, PluginsOfWorkers
from mm2mgr.connectors import Connector
from mm2mgr.errors import KafkaError
from mm2mgr.kafka.acls import Acl, Permission, Right
from mm2mgr.kafka.inspection import ClusterView
from mm2mgr.live.principals import Principal
from mm2mgr.live.reach import ClientLogin
from mm2mgr.render import CLASSES

LOGIN = ClientLogin("agg", "agg:9092")
WRITE, READ, GROUP = Right("Write", "topic", "dc1.t"), Right("Read", "topic", "dc1.t"), Right("Read", "group", "g")
ACL = Acl("User:m", "*", "Write", "topic", "dc1.", prefixed=True, allow=True)
MIRROR = Principal("User:m")
SUPER = frozenset({"ClusterAction"})


def judge(
    rights: Sequence[Right],
    said: Permission,
    acls: Sequence[Acl] | None = None,
    *,
    operations: frozenset[str] = frozenset(),
    login: ClientLogin = LOGIN,
    principal: Principal = MIRROR,
) -> CheckRow:
    """Return the row of the first right."""
    needs = [RequiredRight(7, "c/mm2.x", "record producer", login, right) for right in rights]
    view = ClusterView("", (), operations, {}, frozenset())
    permissions = dict.fromkeys(rights, said)
    answers = Session(
        login, principal, "agg:9092", view=view, permissions=permissions, acls=None if acls is None else tuple(acls)
    )
    return judge_rights(needs, {login: answers})[0]


def test_the_brokers_word_counts() -> None:
    assert judge([WRITE], "yes", acls=[]).status == "ok"
    row = judge([WRITE], "no", acls=[ACL])
    assert (row.status, row.fix, row.rows) == ("missing", "give User:m Write on topic dc1.t", (7,))
    assert row.effect == "the task fails at its first record"


@pytest.mark.parametrize(
    ("acls", "operations", "expected"),
    [
        ([ACL], frozenset(), "ok"),
        ([replace(ACL, operation="Read")], frozenset(), "missing"),
        ([replace(ACL, host="10.0.0.7")], frozenset(), "unknown"),
        ([], SUPER, "ok"),
        (
            [replace(ACL, operation="Read"), replace(ACL, kind="cluster", name="*", prefixed=False, operation="All")],
            SUPER,
            "missing",
        ),
        ([], frozenset(), "unknown"),  # it may describe the topic and no ACL says why
    ],
)
def test_acls_decide_about_a_topic_that_does_not_exist(
    acls: list[Acl], operations: frozenset[str], expected: str
) -> None:
    row = judge([WRITE], "open", acls, operations=operations)
    assert (row.status, row.how) == (expected, "ACLs")


def test_without_acls_describe_gives_a_login_of_one_right_away() -> None:
    assert (judge([WRITE], "open").status, judge([WRITE], "open").how) == ("ok", "inferred")
    row = judge([WRITE, READ], "open")
    assert row.status == "unknown"
    assert "before the topic exists" in row.fix
    assert row.grant is not None


def test_acls_say_nothing_of_a_principal_whose_name_is_not_known() -> None:
    nameless = Principal("User:<subject of the client certificate>", is_known=False)
    assert judge([WRITE, READ], "open", [ACL], principal=nameless).status == "unknown"


def test_a_group_that_was_not_asked_about_is_decided_by_acls_or_not_at_all() -> None:
    assert judge([GROUP], "open").status == "unknown"
    assert judge([GROUP], "open", []).status == "missing"
    assert (
        judge([GROUP], "open", [replace(ACL, kind="group", operation="Read", name="*", prefixed=False)]).status == "ok"
    )
    assert judge([GROUP], "open", [], operations=SUPER).status == "ok"


def test_a_login_that_the_workers_bring_is_told_as_assumed() -> None:
    row = judge([WRITE], "no", login=replace(LOGIN, assumed=True))
    assert row.status == "missing"
    assert "the workers bring their own login" in row.fix


def test_one_right_needed_by_two_rows_is_one_row() -> None:
    needs = [RequiredRight(number, f"c/{number}", "source admin", LOGIN, WRITE) for number in (1, 14)]
    (row,) = judge_rights(
        needs,
        {
            LOGIN: Session(
                LOGIN,
                Principal("User:m"),
                "agg:9092",
                view=ClusterView("", (), frozenset(), {}, frozenset()),
                permissions={WRITE: "no"},
            )
        },
    )
    assert row.rows == (1, 14)
    assert row.connectors == ("c/1", "c/14")


def test_workers_of_one_connect_cluster_that_have_other_versions_are_told() -> None:
    heartbeats = CLASSES["heartbeat"]
    connectors = [
        Connector("a", "source", "east", config={"connector.class": PLUGIN_CLASS}),
        Connector("b", "heartbeat", "east", config={"connector.class": heartbeats}),
    ]

    def rows(*workers: PluginsOfWorker) -> list[tuple[str, str]]:
        answers = {"east": PluginsOfWorkers(workers, len(workers))}
        return [(row.status, row.effect) for row in differing_rows(answers, connectors)]

    def worker(name: str, version: str, **others: str) -> PluginsOfWorker:
        return PluginsOfWorker(name, {CLASSES["source"]: version, heartbeats: version, PLUGIN_CLASS: "1.0", **others})

    first = worker("one:8083", "4.3.1", unused="1")
    assert rows(first) == [], "one worker"
    assert rows(first, worker("two:8083", "4.3.1")) == [], "what nobody here uses may differ"
    assert rows(first, PluginsOfWorker("two:8083", failure="401")) == [], "an unread one proves nothing"
    ((status, effect),) = rows(first, worker("two:8083", "3.6.2"))
    assert status == "failed"
    assert f"not the same version of {heartbeats}, {CLASSES['source']} (one:8083: 4.3.1, two:8083: 3.6.2)" in effect
    lacks = PluginsOfWorker("two:8083", {CLASSES["source"]: "4.3.1", heartbeats: "4.3.1"})
    assert f"{PLUGIN_CLASS} (one:8083: 1.0, two:8083: missing)" in rows(first, lacks)[0][1]
    refused = KafkaError("not read")
    assert list(differing_rows({"east": refused}, connectors)) == []
