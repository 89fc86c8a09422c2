"""Topics that get other names on the target: where they go on, and what forbids it. Never two sources in one topic
unseen, never a second copy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2mgr.errors import StalePlan
from mm2mgr.json_values import to_json
from mm2mgr.lint.reading import running_subject
from mm2mgr.lint.subject import Subject, WorkerFacts
from mm2mgr.output.plan_markdown import plan_markdown
from mm2mgr.output.plan_text import say_plan
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.changes import Change, Plan
from mm2mgr.plan.judges import Connectors
from mm2mgr.plan.mirrored import judge
from mm2mgr.plan.planfile import as_reviewed, read_plan, write_plan
from mm2mgr.plan.widening import MirroredState, widenings
from tests.asking import topics_with
from tests.plan.site import Site, actions, errors

ORDERS, LOGS = "mm2.a.east.source.orders", "mm2.a.east.source.logs"
CHECKPOINT = "mm2.a.east.checkpoint"
ORDERS_FLOW = "flows:\n  orders: {sources: [a], targets: [east], topics: {include: [orders]}}\n"
KEPT = "defaults: {flows: {replication_policy: identity, offset_syncs: {location: target}}}\n"
ALLOW = ["target-names"]


@pytest.fixture
def mirrored(site: Site) -> Site:
    """A site whose orders have arrived: 300 of 310 records, the first 100 of which are no longer there."""
    site.converge(ORDERS_FLOW)
    site.east.add_offsets(ORDERS, "orders", {0: 299}, "a")
    site.kafka = {
        "a": topics_with({"orders": 2}, {"orders": 210}, {"orders": 310}),
        "east": topics_with({"a.orders": 2}, {"a.orders": 305}),
        "west": topics_with({"orders": 1}, {"orders": 3}),
    }
    return site


def change(plan: Plan, connector: str) -> Change:
    return next(each for each in plan.changes if each.connector == connector)


def shown(plan: Plan, capsys: pytest.CaptureFixture[str]) -> str:
    say_plan(plan)
    return capsys.readouterr().out


# --- where it goes on -------------------------------------------------------------------------------------------------


def test_each_topic_is_listed_with_the_offset_at_which_the_new_name_begins(
    mirrored: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = mirrored.plan(ORDERS_FLOW + KEPT, allow=ALLOW)
    found = change(plan, ORDERS)
    assert found.action == "update", found.reason
    (renamed,) = found.renames
    assert to_json(renamed) == {
        "topic": "orders",
        "old": "a.orders",
        "new": "orders",
        "handovers": [
            {"partition": 0, "first": 300, "old_end": 305, "new_start": 0},
            {"partition": 1, "first": None, "old_end": 0, "new_start": 0},
        ],
        "is_final": False,
    }
    text = shown(plan, capsys)
    assert "renames a.orders -> orders: goes on with source offsets 0: 300" in text
    assert "consumers read the old name up to 0: 305, then the new one from its start" in text
    assert "mm2mgr stop makes them exact" in text
    assert "renames a.orders" in plan_markdown(plan)


def test_a_reviewed_rename_is_applied_though_records_went_on(mirrored: Site, tmp_path: Path) -> None:
    """Where a name goes on grows with each record while its connector runs: what was reviewed is which names do."""
    plan = mirrored.plan(ORDERS_FLOW + KEPT, allow=ALLOW)
    write_plan(tmp_path / "plan.json", plan, ["clusters"], None, None)
    reviewed = read_plan(tmp_path / "plan.json").plan
    mirrored.east.add_offsets(ORDERS, "orders", {0: 304}, "a")
    later = mirrored.plan(ORDERS_FLOW + KEPT, allow=ALLOW)
    assert change(later, ORDERS).renames != change(plan, ORDERS).renames
    as_reviewed(reviewed, later)
    with pytest.raises(StalePlan, match="other keys would change"):
        as_reviewed(reviewed, mirrored.plan("defaults: {flows: {separator: '-'}}\n" + ORDERS_FLOW, allow=ALLOW))


def test_a_name_that_brokers_refuse_beside_an_old_one_is_blocked(mirrored: Site) -> None:
    """Brokers create no topic whose name differs from another one in `.` and `_` alone; MirrorMaker only logs that."""
    underscores, dashes = (f"defaults: {{flows: {{separator: '{sign}'}}}}\n" + ORDERS_FLOW for sign in "_-")
    found = change(mirrored.plan(underscores, allow=ALLOW), ORDERS)
    assert found.action == "blocked"
    assert "refuse to create a_orders, since a.orders is there" in found.reason
    assert "delete a.orders on 'east' first" in found.remedy
    assert change(mirrored.plan(dashes, allow=ALLOW), ORDERS).action == "update"
    assert mirrored.kafka
    mirrored.kafka["east"] = topics_with({"a.orders": 2, "a_orders": 2}, {"a.orders": 305})
    assert change(mirrored.plan(underscores, allow=ALLOW), ORDERS).action == "update"


def test_of_many_topics_the_first_ones_are_shown(mirrored: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert mirrored.kafka
    many = {f"orders{number:02}": 1 for number in range(14)}
    pattern = ORDERS_FLOW.replace("[orders]", "['orders[0-9]+']")
    mirrored.kafka = {"a": topics_with(many, many), "east": topics_with({}), "west": topics_with({})}
    mirrored.converge(pattern)
    for topic in many:
        mirrored.east.add_offsets(ORDERS, topic, {0: 0}, "a")
    text = shown(mirrored.plan(pattern + KEPT, allow=ALLOW), capsys)
    assert text.count("goes on with source offsets 0: 1") == 10
    assert "renames 4 more topics: -o json has them all" in text


def test_nothing_is_copied_again(mirrored: Site, capsys: pytest.CaptureFixture[str]) -> None:
    plan = mirrored.plan(ORDERS_FLOW + KEPT, allow=ALLOW)
    found = change(plan, ORDERS)
    assert found.takes is not None
    assert (found.takes.topics, found.price.again) == ({}, None)
    assert "to copy" not in shown(plan, capsys)
    before = dict(mirrored.east.stores(ORDERS)[0])
    assert errors(mirrored.apply(plan, ORDERS_FLOW + KEPT)) == {}
    assert mirrored.east.stores(ORDERS)[0] == before
    assert mirrored.plan(ORDERS_FLOW + KEPT).is_empty


def test_a_topic_that_comes_along_is_still_one_to_copy(mirrored: Site) -> None:
    assert mirrored.kafka
    mirrored.kafka["a"] = topics_with({"orders": 1, "more": 1}, {"orders": 310, "more": 7})
    plan = mirrored.plan(ORDERS_FLOW.replace("[orders]", "[orders, more]") + KEPT, allow=ALLOW)
    found = change(plan, ORDERS)
    assert found.takes is not None
    assert (found.takes.topics, [renamed.topic for renamed in found.renames]) == ({"more": (1, 7)}, ["orders"])


def test_offsets_of_a_stopped_connector_are_exact(mirrored: Site, capsys: pytest.CaptureFixture[str]) -> None:
    mirrored.east.connectors[ORDERS].state = "STOPPED"
    plan = mirrored.plan(ORDERS_FLOW + KEPT, allow=ALLOW)
    assert change(plan, ORDERS).renames[0].is_final
    assert "still grow" not in shown(plan, capsys)


def test_what_is_blocked_shows_it_too(mirrored: Site, capsys: pytest.CaptureFixture[str]) -> None:
    plan = mirrored.plan(ORDERS_FLOW + KEPT)
    assert actions(plan)[ORDERS] == "blocked"
    assert "renames a.orders -> orders: goes on with source offsets 0: 300" in shown(plan, capsys)


# --- names of others --------------------------------------------------------------------------------------------------

NAMES_KEPT = ", replication_policy: identity, offset_syncs: {location: target}"
BOTH = "flows:\n  orders: {sources: [a, west], targets: [east], topics: {include: [orders, 'logs.*']}}\n"


@pytest.fixture
def both(mirrored: Site) -> Site:
    mirrored.converge(BOTH)
    return mirrored


def test_two_sources_with_one_name_are_blocked(both: Site) -> None:
    plan = both.plan(BOTH + KEPT, allow=[*ALLOW, "names-taken"])
    held = change(plan, ORDERS)
    assert held.action == "blocked"
    assert "names-shared: 'orders' on 'east' is the name of a topic of 'a' and of one of 'west'" in held.reason
    assert all(each.action == "blocked" for each in plan.changes if each.type == "source")
    silenced = BOTH.replace("topics:", "silence: {fan-in: logs that nobody reads by source}, topics:")
    assert actions(both.plan(silenced + KEPT, allow=ALLOW))[ORDERS] == "update"


def test_a_name_that_another_source_has_by_its_prefix_is_shared_too(both: Site) -> None:
    text = f"""\
flows:
  orders: {{sources: [a], targets: [east], topics: {{include: [orders, 'west[.].*']}}{NAMES_KEPT}}}
  other: {{sources: [west], targets: [east], topics: {{include: [orders]}}}}
"""
    before = text.replace(NAMES_KEPT, "")
    assert errors(both.converge(before, mirror_again=True, prune=True)) == {}
    held = change(both.plan(text, allow=ALLOW), ORDERS)
    assert "names-shared: 'west.orders' on 'east'" in held.reason, held.reason
    free = text.replace(", 'west[.].*'", "")
    assert actions(both.plan(free, allow=ALLOW))[ORDERS] == "update"


def test_one_source_that_keeps_names_beside_one_that_does_not_is_let_through(both: Site) -> None:
    text = f"""\
flows:
  orders: {{sources: [a], targets: [east], topics: {{include: [orders]}}{NAMES_KEPT}}}
  other: {{sources: [west], targets: [east], topics: {{include: [orders]}}}}
"""
    assert errors(both.converge(text.replace(NAMES_KEPT, ""), mirror_again=True, prune=True)) == {}
    assert actions(both.plan(text, allow=ALLOW))[ORDERS] == "update"


@pytest.mark.parametrize(
    ("class_", "action", "says"),
    [
        ("RegexRouter", "update", "write to topics of the same names on 'east' is not known"),
        ("InsertHeader", "blocked", ""),
    ],
)
def test_a_transformation_counts_only_if_it_may_rename(both: Site, class_: str, action: str, says: str) -> None:
    """What a router makes of names is not compared, and said; any other one changes no name."""
    keys = {
        "transforms": "t",
        "transforms.t.type": f"org.apache.kafka.connect.transforms.{class_}",
        **(
            {"transforms.t.regex": "a", "transforms.t.replacement": "b"}
            if class_ == "RegexRouter"
            else {"transforms.t.header": "h", "transforms.t.value.literal": "v"}
        ),
    }
    both.east.connectors["mm2.west.east.source.orders"].config.update(keys)
    both.east.connectors["mm2.west.east.source.orders"].config.pop("mm2mgr.owner")  # it is nobody's now
    only = BOTH.replace("[a, west]", "[a]")
    by_hand = both.east.connectors["mm2.west.east.source.orders"].config
    by_hand["replication.policy.class"] = f"{MIRROR}IdentityReplicationPolicy"
    found = change(both.plan(only + KEPT, allow=ALLOW), ORDERS)
    assert found.action == action, found.reason
    assert any(says in warning for warning in found.warnings) or not says


def test_names_that_have_records_need_a_word_of_their_own(mirrored: Site) -> None:
    assert mirrored.kafka
    mirrored.kafka["east"] = topics_with({"a.orders": 2, "orders": 1}, {"a.orders": 305, "orders": 5})
    held = change(mirrored.plan(ORDERS_FLOW + KEPT, allow=ALLOW), ORDERS)
    assert held.action == "blocked"
    assert "names-taken: orders on 'east' already had records" in held.reason
    assert "--allow names-taken" in held.remedy
    allowed = change(mirrored.plan(ORDERS_FLOW + KEPT, allow=[*ALLOW, "names-taken"]), ORDERS)
    assert (allowed.action, allowed.renames[0].handovers[0].new_start) == ("update", 5)
    in_tree = ORDERS_FLOW.replace("topics:", "allow: [target-names, names-taken], topics:") + KEPT
    assert actions(mirrored.plan(in_tree))[ORDERS] == "update"


def test_an_empty_topic_of_that_name_is_nobodys(mirrored: Site) -> None:
    assert mirrored.kafka
    mirrored.kafka["east"] = topics_with({"a.orders": 2, "orders": 1}, {"a.orders": 305})
    assert actions(mirrored.plan(ORDERS_FLOW + KEPT, allow=ALLOW))[ORDERS] == "update"


def test_a_target_that_does_not_answer_is_no_proof(mirrored: Site) -> None:
    mirrored.kafka = None
    held = change(mirrored.plan(ORDERS_FLOW + KEPT, allow=ALLOW), ORDERS)
    assert (held.action, "could not be listed" in held.reason) == ("blocked", True)


def test_names_kept_both_ways_are_a_loop(site: Site) -> None:
    text = """\
flows:
  there: {sources: [a], targets: [east], topics: {include: [orders]}}
  back: {sources: [east], targets: [a], topics: {include: [orders]}, run_on: east}
"""
    assert errors(site.converge(text)) == {}
    site.kafka = {
        "a": topics_with({"orders": 1, "east.orders": 1}, {"orders": 5, "east.orders": 5}),
        "east": topics_with({"orders": 1, "a.orders": 1}, {"orders": 5, "a.orders": 5}),
        "west": topics_with({}),
    }
    for name in ("there", "back"):
        pair = "a.east" if name == "there" else "east.a"
        site.east.add_offsets(f"mm2.{pair}.source.{name}", "orders", {0: 4}, pair.partition(".")[0])
    plan = site.plan(text + KEPT, allow=[*ALLOW, "names-taken"])
    held = [each for each in plan.changes if each.type == "source"]
    assert {each.action for each in held} == {"blocked"}
    assert all("identity-loop" in each.reason or "mirrored-already" in each.reason for each in held)


@pytest.mark.parametrize("stopped", ["by the same plan", "before"])
def test_a_way_back_that_keeps_names_is_held_also_where_the_way_there_is_declared_stopped(
    site: Site, stopped: str
) -> None:
    """Without a loop, all that came from the source would still return to it, and be there twice."""
    there = "flows:\n  there: {sources: [a], targets: [east], topics: {include: [orders]}}\n"
    text = there.replace("]}}", "]}, state: stopped}") + (
        "  back: {sources: [east], targets: [a], topics: {include: [orders]}, run_on: east}\n"
    )
    assert errors(site.converge(there + KEPT)) == {}
    site.east.add_offsets("mm2.a.east.source.there", "orders", {0: 299}, "a")
    site.kafka = {
        "a": topics_with({"orders": 1}, {"orders": 300}),
        "east": topics_with({"orders": 1}, {"orders": 320}),
        "west": topics_with({}),
    }
    if stopped == "before":
        site.east.connectors["mm2.a.east.source.there"].state = "STOPPED"
    held = change(site.plan(text + KEPT), "mm2.east.a.source.back")
    assert (held.action, "every record would return to the topic it came from" in held.reason) == ("blocked", True)


# --- offset syncs of the old names ------------------------------------------------------------------------------------

STALE = KEPT.replace(", offset_syncs: {location: target}", "")


def test_offset_syncs_of_the_old_names_are_not_used_for_the_new_ones(mirrored: Site) -> None:
    held = change(mirrored.plan(ORDERS_FLOW + STALE, allow=ALLOW), ORDERS)
    assert held.action == "blocked"
    assert f"stale-syncs: {CHECKPOINT} would go on with the offset syncs of the old names" in held.reason
    assert "mm2-offset-syncs.east.internal on 'a'" in held.reason
    assert "offset_syncs: {location: target}" in held.remedy


def test_back_at_the_source_again_is_another_topic_of_syncs(mirrored: Site) -> None:
    assert errors(mirrored.converge(ORDERS_FLOW + KEPT, allow=ALLOW)) == {}
    back = "defaults: {flows: {offset_syncs: {location: target}}}\n"
    held = change(mirrored.plan(ORDERS_FLOW + back, allow=[*ALLOW, "names-taken"]), ORDERS)
    assert "offset_syncs: {location: source}" in held.remedy
    assert actions(mirrored.plan(ORDERS_FLOW, allow=[*ALLOW, "names-taken"]))[ORDERS] == "update"


def test_another_separator_is_another_topic_of_syncs(mirrored: Site) -> None:
    separated = STALE.replace("identity", "identity, separator: '-'")
    assert actions(mirrored.plan(ORDERS_FLOW + separated, allow=ALLOW))[ORDERS] == "update"


def test_without_a_checkpoint_connector_it_is_a_warning(mirrored: Site) -> None:
    off = STALE.replace("identity", "identity, checkpoints: false")
    found = change(mirrored.plan(ORDERS_FLOW + off, allow=ALLOW, prune=True), ORDERS)
    assert found.action == "update", found.reason
    assert any("a checkpoint connector that reads it later" in warning for warning in found.warnings)


# --- the recipe with blank aliases ------------------------------------------------------------------------------------

BLANK = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "",
    "target.cluster.alias": "",
    "replication.policy.separator": "",
    "source.cluster.bootstrap.servers": "a:9092",
    "target.cluster.bootstrap.servers": "east:9092",
    "topics": "orders",
    **dict.fromkeys(
        (f"{kind}.converter" for kind in ("key", "value", "header")),
        "org.apache.kafka.connect.converters.ByteArrayConverter",
    ),
}
TAKEN_OVER = f"""\
adopt: [{{connect: east, connector: legacy}}]
moved: [{{from: east/legacy, to: 'orders:a->east'}}]
{ORDERS_FLOW.rstrip()}
{STALE}"""


def test_blank_aliases_become_the_identity_policy_with_the_stored_offsets(site: Site) -> None:
    site.east.add("legacy", dict(BLANK))
    site.east.add_offsets("legacy", "orders", {0: 299}, "")
    site.kafka = {
        "a": topics_with({"orders": 1}, {"orders": 310}),
        "east": topics_with({"orders": 1}, {"orders": 300}),
        "west": topics_with({}),
    }
    plan = site.plan(TAKEN_OVER)
    new = change(plan, ORDERS)
    assert new.action == "create", new.reason
    assert (new.takes_over and new.takes_over.giver, new.renames) == (("east", "legacy"), ())
    assert errors(site.apply(plan, TAKEN_OVER)) == {}
    assert "legacy" not in site.names("east")
    (stored,) = site.east.stores(ORDERS)[0].items()
    assert '"a"' in str(stored[0]) or "'a'" in str(stored[0])
    assert stored[1] == {"offset": 299}


# --- whatever the estate ----------------------------------------------------------------------------------------------

ALIASES = ("a", "b", "a.b")
TOPICS = ("t", "u", "b.t", "a.t", "a.b.t", "b.u")
PATTERNS = ("t", "u", "b[.]t", "a[.].*", "b[.].*", "[tu]", ".*", "a[.]b[.].*")
MIRROR = "org.apache.kafka.connect.mirror."
_POLICIES = {"default": f"{MIRROR}DefaultReplicationPolicy", "identity": f"{MIRROR}IdentityReplicationPolicy"}


def config_of(source: str, pattern: str, policy: str, location: str) -> dict[str, str]:
    return {
        "connector.class": f"{MIRROR}MirrorSourceConnector",
        "source.cluster.alias": source,
        "target.cluster.alias": "z",
        "source.cluster.bootstrap.servers": f"{source.replace('.', '-')}:9092",
        "target.cluster.bootstrap.servers": "z:9092",
        "topics": pattern,
        "topics.exclude": "nothing",
        "replication.policy.class": _POLICIES[policy],
        "offset-syncs.topic.location": location,
    }


def names_there(config: Mapping[str, str]) -> dict[str, str]:
    """Return the name on the target of each topic that a config takes, by a reading of our own."""
    identity = config["replication.policy.class"].endswith("IdentityReplicationPolicy")
    prefix = "" if identity else f"{config['source.cluster.alias']}."
    return {topic: prefix + topic for topic in TOPICS if re.fullmatch(config["topics"], topic)}


def subject(name: str, config: Mapping[str, str]) -> Subject:
    found = running_subject("x", name, config, "RUNNING", WorkerFacts(version="4.3.1"))
    assert found
    return found


MIRRORS = st.tuples(st.sampled_from(ALIASES), st.sampled_from(PATTERNS), st.sampled_from(list(_POLICIES)))


def judged(
    first: tuple[str, str, str], others: list[tuple[str, str, str]], taken: set[str], stored: dict[str, int]
) -> None:
    source, pattern, policy = first
    before = config_of(source, pattern, policy, "source")
    after = config_of(source, pattern, {"default": "identity", "identity": "default"}[policy], "target")
    rest = {f"c{number}": config_of(*other, "source") for number, other in enumerate(others)}
    live = {("x", name): subject(name, config) for name, config in (("own", before), *rest.items())}
    desired = live | {("x", "own"): subject("own", after)}
    write = Change("x", "own", "source", "update", config=after, before=before)
    (widening,) = widenings([write], desired, live)
    offsets = {TopicPartition(topic, 0): offset for topic, offset in stored.items()}
    names = dict.fromkeys(taken, 1)
    kafkas = {source: topics_with(dict.fromkeys(TOPICS, 1), dict.fromkeys(TOPICS, 9)), "z": topics_with(names, names)}
    state = MirroredState(
        {("x", "own"): offsets, **{("x", name): {} for name in rest}},
        kafkas,
        {("x", "own"): tuple(names_there(after))},
        aliases=("a", "b", "a.b", "z"),
    )
    verdict = judge(widening, state, Connectors(desired, live, frozenset(live)), "4.3.1", write)
    rules = {remark.rule for remark in verdict.objections if remark.effect == "blocks"}
    mine = names_there(after)
    if not mine:
        return
    theirs = [names_there(config).values() for config in rest.values() if config["source.cluster.alias"] != source]
    if any(set(mine.values()) & set(other) for other in theirs):
        assert "names-shared" in rules, "two sources in one topic, unseen"
    if taken & set(mine.values()):
        assert "names-taken" in rules, "records of others in front of its own, unseen"
    assert "target-names" in rules
    if verdict.again:  # another connector of the same source has the topic under that name
        assert "mirrored-already" in rules, "a second copy"
        return
    assert {renamed.topic: renamed.new for renamed in verdict.renames} == mine
    for renamed in verdict.renames:
        last = stored.get(renamed.topic)
        assert [part.first for part in renamed.handovers] == [None if last is None else last + 1], "a second copy"


def drawn(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=True, database=None)
    @given(
        first=MIRRORS,
        others=st.lists(MIRRORS, max_size=3),
        taken=st.sets(st.sampled_from([*TOPICS, *(f"{a}.{t}" for a, t in product(ALIASES, TOPICS))]), max_size=3),
        stored=st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 8), max_size=4),
    )
    def holds(
        first: tuple[str, str, str], others: list[tuple[str, str, str]], taken: set[str], stored: dict[str, int]
    ) -> None:
        judged(first, others, taken, stored)

    holds()


def test_never_two_sources_into_one_name_unseen_and_never_a_second_copy() -> None:
    drawn(40)


@pytest.mark.matrix
def test_never_in_many_more_estates() -> None:
    drawn(5_000)
