"""What a plan says that a change costs, and that costly kinds are held until somebody allows them."""

from __future__ import annotations

from typing import get_args

import pytest

from mm2mgr.assignment import moved_partitions
from mm2mgr.json_values import to_json
from mm2mgr.live.record_sizes import TopicSizes
from mm2mgr.output.plan_text import price_text
from mm2mgr.partitions import Offsets, TopicPartition, listing_of, predict
from mm2mgr.plan.changes import KINDS, Change, Plan, Price, Volume
from mm2mgr.plan.judges import with_many_changes_held
from mm2mgr.plan.mirroring_cost import count_moved, log_bytes, volume
from mm2mgr.spec.mistakes import properties_of
from mm2mgr.spec.models import FlowSettings
from tests.asking import topics_with
from tests.plan.site import FLOWS, ON_EAST, ON_WEST, Site, actions

ORDERS, LOGS = "mm2.a.east.source.orders", "mm2.a.east.source.logs"
CHECKPOINT = ON_EAST[-1]
RENAMED = FLOWS.replace("orders: {", "trade: {")
SEPARATOR = FLOWS + "defaults: {flows: {separator: '-'}}\n"
NONE: list[str] = []


def change(plan: Plan, connector: str) -> Change:
    return next(each for each in plan.changes if each.connector == connector)


@pytest.fixture
def mirrored(site: Site) -> Site:
    """A site whose orders have arrived: 300 000 records."""
    site.converge()
    site.east.add_offsets(ORDERS, "orders", {0: 299_999}, "a")
    assert site.kafka
    site.kafka["a"] = topics_with({"orders": 1, "logs.web": 4}, {"orders": 300_000}, {"orders": 300_000})
    site.kafka["east"] = topics_with({"a.orders": 1}, {"a.orders": 300_000}, {"a.orders": 300_000})
    return site


# --- counting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(1, 2), (4, 8), (8, 4), (3, 3), (10, 7), (2, 64)])
def test_partitions_that_get_another_task_when_their_number_changes(before: int, after: int) -> None:
    listed = {"orders": 12, "logs.web": 7, "other": 5, "__consumer_offsets": 50}
    takes = {"orders", "logs.web"}.__contains__
    assert count_moved(listed, takes, takes, (before, after)) == (moved_partitions(19, before, min(after, 19)), 19)


def test_partitions_that_get_another_task_because_a_topic_comes_or_goes() -> None:
    listed = {f"t{number}": 3 for number in range(20)}
    before, after = (lambda topic: topic != "t7"), (lambda topic: True)
    was, now = (predict(listing_of(listed), takes).order for takes in (before, after))
    places = {one: number % 4 for number, one in enumerate(now)}
    expected = sum(places[one] != number % 4 for number, one in enumerate(was))
    assert 0 < expected < 57
    assert count_moved(listed, before, after, (4, 4)) == (expected, 57)
    assert count_moved(listed, before, after, (1, 1)) == (0, 57)
    assert count_moved(listed, None, after, (4, 4)) is None


def test_a_volume_counts_from_the_logs_start_or_the_connectors_own_offsets() -> None:
    logs = {TopicPartition("t", 0): Offsets(100, 1100), TopicPartition("t", 1): Offsets(0, 500)}
    sizes = TopicSizes({**logs, TopicPartition("u", 0): Offsets(0, 10)}, {"t": 1000.0})
    assert volume(sizes, ["t"], {}, {}) == Volume(1500, round(1500 * log_bytes(1000.0)))
    assert volume(sizes, ["t"], {TopicPartition("t", 0): 1049}, {}).records == 550
    assert volume(sizes, ["t", "u", "v"], {}, {}).unmeasured == ("u", "v")
    assert volume(sizes, ["t"], {}, {"t": None}).uncompressed == ("t",)
    assert volume(sizes, ["t"], {}, {"t": 300.0}) == Volume(1500, 450_000)
    assert 1010 < log_bytes(1000.0) < 1020


def test_prices_add_up_and_what_is_unknown_stays_unknown() -> None:
    one, other = Price(3, 2, 10, Volume(5, 50)), Price(1, None, 0, Volume(1, 10, ("x",)), irreversible=("gone",))
    assert one + other == Price(4, None, 10, Volume(6, 60, ("x",)), irreversible=("gone",))
    assert to_json(Price(2) + Price()) == to_json(Price(2))
    assert to_json(Price()) is None


# --- in a plan --------------------------------------------------------------------------------------------------------


def test_an_update_says_which_tasks_restart_and_where_its_values_come_from(mirrored: Site) -> None:
    mirrored.east.connectors[LOGS].forced_tasks = 3
    plan = mirrored.plan(FLOWS.replace('include: ["logs[.].*"]}', 'include: ["logs[.].*"]}, tasks: {max: 2}'))
    found = change(plan, LOGS)
    assert found.price == Price(3, moved_partitions(4, 3, 2), 4)
    assert [(key["key"], str(key["origin"]).partition(" ")[0]) for key in to_json(found)["keys"]] == [
        ("tasks.max", "spec")
    ]
    assert "x.yaml:" in to_json(found)["keys"][0]["origin"]
    assert plan.flow_prices()["logs:a->east"].restarts == 3
    assert to_json(plan)["price"]["restarts"] == 3 + 1  # the same flow's connector on west


@pytest.mark.parametrize(("state", "restarts"), [("RUNNING", 1), ("PAUSED", 0), ("STOPPED", 0)])
def test_what_rests_does_not_restart(site: Site, state: str, restarts: int) -> None:
    site.converge()
    site.east.connectors[ORDERS].state = state
    slower = site.plan(FLOWS.replace("[orders]}", "[orders]}, source_consumer: {max.poll.records: 400}"))
    assert change(slower, ORDERS).price.restarts == restarts


def test_a_plan_without_changes_has_no_price(site: Site) -> None:
    site.converge()
    plan = to_json(site.plan())
    assert (plan["price"], plan["flow_prices"]) == (None, {})


def test_a_delete_cannot_be_undone(mirrored: Site) -> None:
    plan = mirrored.plan(FLOWS.replace("targets: [east, west]", "targets: [east]"), prune=True)
    assert [each.price.irreversible for each in plan.changes if each.action == "delete"] == [
        (f"{name} is deleted; its stored offsets stay in Kafka under its name",) for name in sorted(ON_WEST)
    ]


def test_the_groups_whose_checkpoints_start_anew_are_counted(site: Site) -> None:
    """Those that read what the pair mirrors; where the source does not answer, their patterns are shown, and that they are not counted."""
    site.converge()
    slower = FLOWS.replace("[orders]}", "[orders]}, checkpoints: {interval: 7s}")
    slower = slower.replace('["logs[.].*"]}', '["logs[.].*"]}, checkpoints: {interval: 7s}')
    site.groups = {
        "billing": ["orders"],
        "search": ["logs.web", "x"],
        "elsewhere": ["x"],
        "idle": [],
        "console-consumer-7": ["orders"],
    }
    plan = site.plan(slower)
    assert change(plan, CHECKPOINT).price == Price(1, groups=("billing", "search"))
    said = price_text(change(plan, CHECKPOINT).price)
    assert said == "restarts 1 task, checkpoints of 2 groups start anew (billing, search)"
    site.groups = None
    found = change(site.plan(slower), CHECKPOINT).price
    assert found == Price(1, group_patterns=(".*",))
    assert price_text(found).endswith("groups .* start anew (how many could not be read)")


# --- mirrored a second time -------------------------------------------------------------------------------------------


def test_a_renamed_flow_is_blocked_with_the_records_and_bytes_that_would_come_again(mirrored: Site) -> None:
    found = change(mirrored.plan(RENAMED, prune=True), "mm2.a.east.source.trade")
    assert found.action == "blocked"
    assert found.price.again == Volume(300_000, round(300_000 * log_bytes(100.0)), uncompressed=("orders",))
    assert price_text(found.price).startswith("mirrors 300000 records (33.1 MB; before compression: orders) again")
    assert "--allow mirror-again" in found.remedy


def test_what_is_stored_compressed_counts_as_it_is_stored_where_it_was_mirrored_to(mirrored: Site) -> None:
    mirrored.stored = {"a.orders": 25.0}
    found = change(mirrored.plan(RENAMED, prune=True), "mm2.a.east.source.trade")
    assert found.price.again == Volume(300_000, 300_000 * 25)


def test_what_is_allowed_is_written_and_keeps_its_price(mirrored: Site) -> None:
    in_tree = RENAMED.replace("[orders]}", "[orders]}, allow: [mirror-again]")
    for flows, allow in ((RENAMED, ["mirror-again"]), (in_tree, NONE)):
        plan = mirrored.plan(flows, prune=True, allow=allow)
        assert actions(plan)["mm2.a.east.source.trade"] == "create"
        assert actions(plan)[ORDERS] == "delete"
        again = change(plan, "mm2.a.east.source.trade").price.again
        assert again
        assert again.records == 300_000
        assert plan.price.again == again


def test_what_one_flow_may_do_another_may_not(mirrored: Site) -> None:
    other = RENAMED.replace('include: ["logs[.].*"]}', 'include: ["logs[.].*"]}, allow: [mirror-again]')
    assert actions(mirrored.plan(other))["mm2.a.east.source.trade"] == "blocked"


def test_a_source_that_does_not_answer_has_an_unknown_volume(mirrored: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    mirrored.kafka = None
    found = change(mirrored.plan(RENAMED), "mm2.a.east.source.trade")
    assert found.price.again == Volume(0, 0, ("topics of 'a'",))


# --- other names on the target ----------------------------------------------------------------------------------------


def test_other_names_on_the_target_need_a_word(mirrored: Site) -> None:
    plan = mirrored.plan(SEPARATOR)
    held = change(plan, ORDERS)
    assert held.action == "blocked"
    assert "a.orders -> a-orders" in held.reason
    assert "--allow target-names" in held.remedy
    allowed = change(mirrored.plan(SEPARATOR, allow=["target-names"]), ORDERS)
    assert allowed.action == "update"
    assert "a.orders -> a-orders" in allowed.price.irreversible[0]
    in_tree = SEPARATOR.replace("separator:", "allow: [target-names], separator:")
    assert actions(mirrored.plan(in_tree))[ORDERS] == "update"


def test_other_names_where_the_source_does_not_answer_need_a_word_too(mirrored: Site) -> None:
    mirrored.kafka = None
    assert actions(mirrored.plan(SEPARATOR))[ORDERS] == "blocked"


def routed(*steps: tuple[str, str, str], silence: str = "{transform-renames: consumers read mirror.orders}") -> str:
    """Return FLOWS with transformations of orders: class, regex, replacement."""
    keys = {"transforms": ",".join(f"t{number}" for number in range(len(steps)))}
    for number, values in enumerate(steps):
        keys |= {
            f"transforms.t{number}.{key}": value
            for key, value in zip(("type", "regex", "replacement"), values, strict=True)
            if value
        }
        keys |= {f"transforms.t{number}.headers": "h"} if values == DROP else {}
    text = ", ".join(f"{key}: '{value}'" for key, value in keys.items())
    return FLOWS.replace("include: [orders]}", f"include: [orders]}}, silence: {silence}, source_connector: {{{text}}}")


ROUTER = ("org.apache.kafka.connect.transforms.RegexRouter", "a[.](.*)", "mirror.$1")
OTHERS = ("com.acme.Router", "", "")
DROP = ("org.apache.kafka.connect.transforms.DropHeaders", "", "")
TO_UNKNOWN = "what com.acme.Router makes of a.orders"


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        (FLOWS, routed(ROUTER, silence="{}"), "a.orders -> mirror.orders"),
        (routed(ROUTER), FLOWS, "mirror.orders -> a.orders"),
        (routed(ROUTER), routed((ROUTER[0], ROUTER[1], "copy.$1")), "mirror.orders -> copy.orders"),
        (routed(ROUTER), routed((ROUTER[0], "z[.](.*)", "mirror.$1")), "mirror.orders -> a.orders"),
        (routed(ROUTER, DROP), routed(ROUTER), ""),
        (routed(ROUTER, DROP), routed(DROP, ROUTER), ""),  # the same name on another way
        (routed(ROUTER), routed((ROUTER[0], "a[.](.+)", "mirror.$1")), ""),
        (FLOWS, routed((ROUTER[0], "z[.](.*)", "mirror.$1")), ""),
        (FLOWS, routed((ROUTER[0], "z[.].{1,9}+", "mirror")), ""),  # only an automaton knows that it matches none
        (FLOWS, routed(OTHERS, silence="{}"), f"a.orders -> {TO_UNKNOWN}"),
        (routed(OTHERS), routed(OTHERS, ROUTER), f"{TO_UNKNOWN} -> {TO_UNKNOWN}"),
        (FLOWS, routed(ROUTER) + "defaults: {flows: {separator: '-'}}\n", "a.orders -> a-orders"),
        (routed(OTHERS), FLOWS, f"{TO_UNKNOWN} -> a.orders"),
        (routed(OTHERS), routed((OTHERS[0], "x", "")), f"{TO_UNKNOWN} -> {TO_UNKNOWN}"),
        (routed(OTHERS), routed(OTHERS, DROP), ""),
        (
            FLOWS,
            FLOWS + "defaults: {flows: {replication_policy: identity, offset_syncs: {location: target}}}\n",
            "a.orders -> orders",
        ),
        (
            FLOWS,
            FLOWS + "defaults: {flows: {replication_policy: com.acme.Policy, offset_syncs: {location: target}}}\n",
            "a.orders -> what com.acme.Policy makes of orders",
        ),
    ],
)
def test_whatever_changes_names_on_the_target_needs_a_word(mirrored: Site, before: str, after: str, names: str) -> None:
    mirrored.converge(before, allow=["target-names"])
    plan = mirrored.plan(after)
    held = change(plan, ORDERS)
    if not names:
        assert held.action == "update", held.reason
        return
    assert held.action == "blocked"
    assert "target-names: " in held.reason
    assert names in held.reason
    for remedy in ("--allow target-names", "allow: [target-names]"):
        assert remedy in held.remedy
    was_routed = "source_connector" in before or "silence: {}" in after
    assert ("silence: {transform-renames: why}" in held.remedy) == was_routed
    silenced = after.replace("silence: {}", "silence: {transform-renames: they follow}")
    back = "-> a.orders" in names  # where it has records from the time before
    assert ("names-taken: " in held.reason) == back
    allow = ["target-names", *(["names-taken"] if back else [])]
    allowed = change(mirrored.plan(silenced, allow=allow), ORDERS)
    assert allowed.action == "update"
    assert names in allowed.price.irreversible[0]


@pytest.mark.parametrize("type_", [ROUTER, OTHERS])
def test_a_new_transformation_that_the_tree_silences_is_written_with_a_warning(
    mirrored: Site, type_: tuple[str, str, str]
) -> None:
    written = change(mirrored.plan(routed(type_)), ORDERS)
    assert written.action == "update"
    assert any("silenced: consumers read mirror.orders" in each for each in written.warnings if "target-names" in each)
    assert "a.orders -> " in written.price.irreversible[0]


@pytest.mark.parametrize(
    ("regex", "renames"),
    [
        ("a[.]orders.*", False),
        ("logs[.].*", False),
        ("a[.]logs[.]audit", True),
        ("a[.]logs[.].{0,9}", True),
        ("(?!a[.]logs).*", False),
    ],
)
def test_a_router_is_judged_by_the_pattern_of_the_flow_where_the_source_was_not_read(
    mirrored: Site, regex: str, renames: bool
) -> None:
    keys = (
        f"transforms: t, transforms.t.type: '{ROUTER[0]}', transforms.t.regex: '{regex}', transforms.t.replacement: m"
    )
    after = FLOWS.replace('"logs[.].*"]}', f'"logs[.].*"]}}, source_connector: {{{keys}}}')
    mirrored.kafka = None
    held = change(mirrored.plan(after), "mm2.a.east.source.logs")
    assert ("target-names: " in held.reason) == renames, held.reason


def test_adopting_without_the_transformation_that_runs_needs_a_word(mirrored: Site) -> None:
    live = dict(mirrored.east.connectors[ORDERS].config)
    del live["mm2mgr.owner"]
    live |= {
        "transforms": "t",
        "transforms.t.type": ROUTER[0],
        "transforms.t.regex": ROUTER[1],
        "transforms.t.replacement": ROUTER[2],
    }
    mirrored.east.connectors[ORDERS].config = live
    adopting = f"adopt: [{{connect: east, connector: {ORDERS}}}]\n"
    held = change(mirrored.plan(FLOWS + adopting), ORDERS)
    assert (held.action, "mirror.orders -> a.orders" in held.reason) == ("blocked", True)
    assert "silence: {transform-renames: why}" in held.remedy
    assert change(mirrored.plan(routed(ROUTER).replace("t0", "t") + adopting), ORDERS).action == "no-op"


@pytest.mark.parametrize("length", [247, 248])
def test_a_name_that_is_too_long_on_the_target_is_blocked_and_named(site: Site, length: int) -> None:
    site.converge()
    long = f"logs.{'n' * (length - 5)}"
    assert site.kafka
    site.kafka["a"] = topics_with({"orders": 1, "logs.web": 1, "logs.x": 1, long: 1}, {}, {})
    flows = FLOWS.replace("logs[.].*", "logs[.](web|x)")
    site.converge(flows)
    held = change(site.plan(), LOGS)
    assert held.action == ("update" if length == 247 else "blocked")
    if length == 248:
        assert f"of topic '{long}', which has 248 characters, would have 250: Kafka allows 249" in held.reason
        assert f"exclude: [{long}]" in held.remedy
        without = FLOWS.replace('["logs[.].*"]', f'["logs[.].*"], exclude: [{long}]')
        assert change(site.plan(without), LOGS).action == "update"
        named = FLOWS.replace('["logs[.].*"]', f'["logs[.].*", {long}]')
        assert change(site.plan(named), LOGS).reason.count("name-too-long") == 1


def test_a_permit_that_nothing_needs_is_named(mirrored: Site) -> None:
    permits = "defaults: {flows: {allow: [mirror-again]}}\n"
    idle = "`allow: [mirror-again]` of logs:a->east, orders:a->east is not needed (any more): the line can go"
    assert idle in mirrored.plan(FLOWS + permits).clusters[0].notes
    notes = mirrored.plan(RENAMED + permits, prune=True).clusters[0].notes
    assert [note for note in notes if "allow" in note] == [idle.replace(", orders:a->east", "")]


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "written"), [(None, 7), (7, 7), (6, 0), (0, 0)])
def test_more_changes_than_meant_are_none(site: Site, most: int | None, written: int) -> None:
    from dataclasses import replace

    plan = site.plan()
    assert len(plan.changes) == len(ON_EAST) + len(ON_WEST) == 7
    held = with_many_changes_held(replace(plan, wish=replace(plan.wish, max_changes=most)))
    assert len(held.writes) == written
    if not written:
        assert held.changes[0].reason == f"too many changes: 7, and --max-changes allows {most}"


def test_each_kind_that_a_flow_may_allow_is_explained() -> None:
    (kinds,) = get_args(FlowSettings.model_fields["allow"].annotation)
    assert set(get_args(kinds)) == KINDS.keys() - {"deletes", "tasks-per-worker"}
    assert all(f"`{kind}`" in properties_of("FlowSettings")["allow"]["description"] for kind in get_args(kinds))
