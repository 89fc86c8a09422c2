"""A reviewed plan on disk: it comes back as it was, is refused when it says something else than apply would do, or is damaged."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mm2mgr.comparison.ownership import Journal, Ownership
from mm2mgr.errors import Mm2mgrError, StalePlan
from mm2mgr.json_values import to_json
from mm2mgr.output.plan_text import say_plan
from mm2mgr.plan.changes import ClusterPlan, Plan, Price, Volume, Wish
from mm2mgr.plan.draft import plan_cluster, with_deletes
from mm2mgr.plan.planfile import as_reviewed, read_plan, write_plan
from mm2mgr.plan.stages import explain, stages
from tests.plan.site import FLOWS, ON_WEST, Site, errors
from tests.plan.test_moves import KINDS, Killed, begin
from tests.plan.test_plan import live, running, wanted


def plan_of(*parts: ClusterPlan, owner: str = "team", prune: bool = False) -> Plan:
    return Plan(owner, parts, Wish(prune))


def part(name: str = "w", linger: str = "5", found: dict[str, dict[str, str]] | None = None) -> ClusterPlan:
    return plan_cluster(Ownership("team"), name, [wanted("n", linger=linger)], running(found or {}))


def reviewed(folder: Path, plan: Plan) -> dict[str, Any]:
    write_plan(folder / "plan.json", plan, ["clusters"], None, None)
    return read_plan(folder / "plan.json").plan


def test_a_plan_file_says_what_it_was_made_from(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    write_plan(file, plan_of(part()), ["clusters", "more.yaml"], "templates", ["f:a->b"])
    back = read_plan(file)
    assert (back.clusters, back.templates, back.only) == (("clusters", "more.yaml"), "templates", ("f:a->b",))
    saw = {
        "config": None,
        "wanted": back.plan["clusters"][0]["changes"][0].pop("saw")["wanted"],
        "state": "",
        "tasks": 0,
    }
    assert len(saw["wanted"]) == 32
    assert back.plan == to_json(plan_of(part()))
    write_plan(file, plan_of(part()), ["clusters"], None, None)
    assert (read_plan(file).templates, read_plan(file).only) == (None, None)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]  # nothing half written stays


def test_an_unchanged_plan_is_not_stale(tmp_path: Path) -> None:
    plan = plan_of(part(), part("v", found=live("n", linger="1")), ClusterPlan("u", error="down"))
    as_reviewed(reviewed(tmp_path, plan), plan)


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        (plan_of(part()), plan_of(part(linger="6")), "w/n: other keys would change than reviewed"),
        (plan_of(part()), plan_of(part(found=live("n"))), "w/n: reviewed as create, now update"),
        (plan_of(part()), plan_of(part(linger="6", found=live("n", linger="6"))), "w/n: reviewed as create, now no-op"),
        (
            plan_of(part(found=live("n", linger="5"))),
            plan_of(part(linger="6", found=live("n", linger="6"))),
            "w/n: its config was changed since the plan was made",
        ),
        (plan_of(part()), plan_of(part(found=live("n", "them"))), "w/n: reviewed as create, now blocked"),
        (plan_of(part(found=live("n"))), plan_of(part(found=live("n", x="1"))), "w/n: other keys would change"),
        (plan_of(part()), plan_of(ClusterPlan("w")), "w/n: reviewed as create, now absent"),
        (plan_of(ClusterPlan("w")), plan_of(part()), "w/n: reviewed as absent, now create"),
        (plan_of(part()), plan_of(part("v")), "Connect cluster 'v' is in only one of the two plans"),
        (plan_of(part()), plan_of(part(), part("v")), "Connect cluster 'v' is in only one of the two plans"),
        (plan_of(part()), plan_of(part(), prune=True), "owner, --prune or --allow differs from the saved plan"),
        (
            plan_of(part()),
            plan_of(part(), owner="them"),
            "owner, --prune or --allow differs from the saved plan",
        ),
    ],
)
def test_a_plan_that_says_something_else_is_refused(tmp_path: Path, before: Plan, now: Plan, says: str) -> None:
    with pytest.raises(StalePlan, match="the plan is stale") as caught:
        as_reviewed(reviewed(tmp_path, before), now)
    assert says in caught.value.message
    assert caught.value.hint


def test_a_connect_cluster_that_cannot_be_read_now_holds_up_no_other(tmp_path: Path) -> None:
    down = ClusterPlan("v", error="down")
    now = as_reviewed(reviewed(tmp_path, plan_of(part(), part("v"))), plan_of(part(), down))
    assert (now.clusters, now.has_failed) == ((part(), down), True)


def test_what_was_never_reviewed_is_not_applied(tmp_path: Path) -> None:
    saved = reviewed(tmp_path, plan_of(part(), ClusterPlan("v", error="down")))
    now = as_reviewed(saved, plan_of(part(), part("v")))
    assert [change.connect for change in now.writes] == ["w"]
    assert now.clusters[1].error == "it could not be read when the plan was made, so its changes were never reviewed"
    assert now.has_failed


def test_a_state_is_part_of_what_was_reviewed(tmp_path: Path) -> None:
    def found(state: str, wished: str | None) -> ClusterPlan:
        connector = replace(wanted("n"), state=wished)
        return plan_cluster(Ownership("team"), "w", [connector], running(live("n"), state))

    saved = reviewed(tmp_path, plan_of(found("RUNNING", "PAUSED")))
    as_reviewed(saved, plan_of(found("RUNNING", "PAUSED")))
    assert as_reviewed(saved, plan_of(found("PAUSED", "PAUSED"))).writes == ()
    for other in (found("RUNNING", "STOPPED"), found("RUNNING", None)):
        with pytest.raises(StalePlan):
            as_reviewed(saved, plan_of(other))


def test_reviewed_deletes_need_no_other_word(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(50)]
    found = {name: config for name in names for config in live(name).values()}
    plan = plan_of(with_deletes(plan_cluster(Ownership("team"), "w", [], running(found)), running(found)), prune=True)
    write_plan(tmp_path / "plan.json", plan, ["clusters"], None, None)
    assert read_plan(tmp_path / "plan.json").wish == Wish(prune=True, allow_deletes=50)


def test_many_differences_are_counted(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(9)]
    now = plan_of(plan_cluster(Ownership("team"), "w", [wanted(name) for name in names], {}))
    with pytest.raises(StalePlan, match="and 4 more"):
        as_reviewed(reviewed(tmp_path, plan_of(ClusterPlan("w"))), now)


@pytest.mark.parametrize(
    ("price", "says"),
    [
        (Price(again=Volume(5, 50)), "w/n: records would be mirrored again, which was not reviewed"),
        (Price(irreversible=("topics of other names",)), "w/n: topics of other names, which was not reviewed"),
    ],
)
def test_a_plan_that_has_come_to_cost_more_is_refused(tmp_path: Path, price: Price, says: str) -> None:
    costly = part().each(lambda change: replace(change, price=price))
    with pytest.raises(StalePlan) as caught:
        as_reviewed(reviewed(tmp_path, plan_of(part())), plan_of(costly))
    assert says in caught.value.message
    more = part().each(
        lambda change: replace(change, price=price + Price(again=Volume(9, 90)) if price.again else price)
    )
    as_reviewed(reviewed(tmp_path, plan_of(costly)), plan_of(more))
    as_reviewed(reviewed(tmp_path, plan_of(costly)), plan_of(part()))


def test_what_happened_to_others_connectors_makes_no_plan_stale(tmp_path: Path) -> None:
    as_reviewed(reviewed(tmp_path, plan_of(part())), plan_of(part(found=live("theirs", "them"))))


def test_a_real_change_behind_the_reviewers_back(site: Site, tmp_path: Path) -> None:
    site.converge()
    linger = FLOWS.replace("[orders]}", "[orders]}, record_producer: {linger.ms: 7}")
    saved = reviewed(tmp_path, site.plan(linger))
    as_reviewed(saved, site.plan(linger))
    site.east.connectors["mm2.a.east.source.orders"].config["tasks.max"] = "9"
    with pytest.raises(StalePlan, match=r"east/mm2\.a\.east\.source\.orders: other keys"):
        as_reviewed(saved, site.plan(linger))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"plan"',
        "{}",
        '{"mm2mgr-plan": 2, "plan": {}}',
        '{"mm2mgr-plan": 1}',
        '{"mm2mgr-plan": 1, "plan": []}',
        '{"mm2mgr-plan": 1, "plan": {}}',
        '{"mm2mgr-plan": 1, "clusters": [], "templates": null, "only": null, "plan": {"clusters": 5}}',
        '{"mm2mgr-plan": 1, "clusters": [], "templates": null, "only": null, "plan": {"clusters": [{}]}}',
        '{"mm2mgr-plan": 1, "clusters": [], "templates": null, "only": null, "plan": {"clusters": [{"connect": 5}]}}',
        '{"mm2mgr-plan": 1, "clusters": 7, "templates": null, "only": null, "plan": {"clusters": []}}',
        '{"mm2mgr-plan": 1, "clusters": [], "templates": null, "only": 7, "plan": {"clusters": []}}',
    ],
)
def test_what_is_no_plan_file_is_refused_with_the_way_to_make_one(tmp_path: Path, text: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(Mm2mgrError, match=r"plan\.json: ") as caught:
        read_plan(file)
    assert (caught.value.hint or "").endswith("make one with mm2mgr plan --out FILE")


@pytest.mark.parametrize("name", ["[]", "{}", "0", "null"])
def test_names_that_are_no_text_are_damage(tmp_path: Path, name: str) -> None:
    write_plan(tmp_path / "plan.json", plan_of(part()), ["clusters"], None, None)
    text = (tmp_path / "plan.json").read_text(encoding="utf-8")
    (tmp_path / "plan.json").write_text(text.replace('"connector": "n"', f'"connector": {name}'), encoding="utf-8")
    with pytest.raises(Mm2mgrError, match="this plan file is damaged"):
        read_plan(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("clusters", ["\ud800"]),
        ("clusters", [7]),
        ("clusters", ["a\0b"]),
        ("templates", [[["x"]]]),
        ("templates", {}),
        ("templates", "\ud800"),
    ],
)
def test_paths_that_no_file_can_have_are_damage(tmp_path: Path, key: str, path: object) -> None:
    write_plan(tmp_path / "plan.json", plan_of(part()), ["clusters"], None, None)
    document = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    (tmp_path / "plan.json").write_text(json.dumps({**document, key: path}), encoding="utf-8")
    with pytest.raises(Mm2mgrError, match="this plan file is damaged"):
        read_plan(tmp_path / "plan.json")


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(Mm2mgrError, match=r"absent\.json: no such file"):
        read_plan(tmp_path / "absent.json")
    (tmp_path / "latin1.json").write_bytes(b'{"\xe9"')
    with pytest.raises(Mm2mgrError, match="not a plan file"):
        read_plan(tmp_path / "latin1.json")
    with pytest.raises(Mm2mgrError, match="could not be written"):
        write_plan(tmp_path / "no" / "plan.json", plan_of(part()), [], None, None)


WHOLE = plan_of(part(found=live("n")), part("v"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_a_damaged_file_is_an_error_for_people_or_the_same_plan(tmp_path: Path, data: st.DataObject) -> None:
    file = tmp_path / "plan.json"
    file.unlink(missing_ok=True)  # the one damaged before: no plan any more, so nothing that would be overwritten
    write_plan(file, WHOLE, ["clusters"], None, None)
    text = file.read_text(encoding="utf-8")
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    file.write_text(text[:start] + data.draw(st.sampled_from(["", "0", "{}", "[]", '"x"', "null"])) + text[end:])
    with suppress(Mm2mgrError):  # anything else is a crash
        as_reviewed(read_plan(file).plan, WHOLE)
        assert json.loads(file.read_text())["plan"].keys() >= {"owner", "clusters"}


# --- a plan file that is applied again --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (plan_of(part()), plan_of(part(found=live("n", linger="5")))),  # created
        (plan_of(part(found=live("n", linger="1"))), plan_of(part(found=live("n", linger="5")))),  # updated
        (
            plan_of(
                with_deletes(plan_cluster(Ownership("team"), "w", [], there := running(live("n"))), there), prune=True
            ),
            plan_of(ClusterPlan("w"), prune=True),
        ),  # deleted
    ],
)
def test_what_an_earlier_apply_has_done_is_no_difference(tmp_path: Path, before: Plan, now: Plan) -> None:
    assert as_reviewed(reviewed(tmp_path, before), now).writes == ()


def test_what_an_earlier_apply_has_begun_goes_on(tmp_path: Path) -> None:
    before = plan_of(part(found=live("n", linger="1")))
    begun = {"n": Journal("RUNNING").added_to(live("n", linger="1")["n"])}
    (left,) = as_reviewed(reviewed(tmp_path, before), plan_of(part(found=begun))).writes
    assert (left.connector, left.action) == ("n", "update")
    other = plan_of(part(linger="6", found=begun))
    with pytest.raises(StalePlan):
        as_reviewed(reviewed(tmp_path, before), other)


def test_an_interrupted_apply_is_finished_with_the_same_file(site: Site, tmp_path: Path) -> None:
    saved = reviewed(tmp_path, site.plan())
    site.east.fail_next("POST", "/connectors", 500, times=1000)
    site.converge()
    assert site.names("east") == []
    site.east.faults.clear()
    left = as_reviewed(saved, site.plan())
    assert {change.connect for change in left.writes} == {"east"}
    assert errors(site.apply(left)) == {}
    assert as_reviewed(saved, site.plan()).writes == ()
    site.west.connectors[ON_WEST[1]].config["x"] = "by hand"
    with pytest.raises(StalePlan, match=re.escape(ON_WEST[1])):
        as_reviewed(saved, site.plan())


@pytest.mark.parametrize("kind", ["renamed", "a topic to another flow", "a topic that was removed earlier"])
def test_a_move_that_was_killed_is_finished_with_the_same_file(tmp_path: Path, kind: str) -> None:
    """Killed after every sixth request of the move."""
    after = KINDS[kind].after
    for requests in range(1, 60, 6):
        workers = begin(KINDS[kind])
        saved = reviewed(tmp_path, workers.plan(after))
        (tmp_path / "plan.json").unlink()
        with suppress(Killed):
            workers.apply(after, requests)
        as_reviewed(saved, workers.plan(after))
        if workers.requests_left > 0:
            break
        workers.apply(after)
        assert as_reviewed(saved, workers.plan(after)).writes == ()


@pytest.mark.parametrize("kind", ["renamed", "a topic to another flow"])
def test_a_saved_move_names_the_topics_that_are_taken_over(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = begin(KINDS[kind]).plan(KINDS[kind].after)
    write_plan(tmp_path / "plan.json", plan, ["clusters"], None, None)
    say_plan(plan)
    fresh = capsys.readouterr().out
    assert "0 to copy; goes on at the stored offsets: " in fresh
    say_plan(read_plan(tmp_path / "plan.json").as_shown)
    assert capsys.readouterr().out == fresh


def test_no_secret_can_be_guessed_from_a_digest(tmp_path: Path) -> None:
    before, other = (
        live("n", **{"source.cluster.sasl.jaas.config": f"x password='{word}';"}) for word in ("one", "two")
    )
    saved = [reviewed(tmp_path, plan_of(part(found=found))) for found in (before, other)]
    one, two = (each["clusters"][0]["changes"][0]["saw"]["config"] for each in saved)
    assert one == two


def test_a_plan_explains_the_steps_of_each_change(site: Site) -> None:
    site.converge()
    plan = site.plan(FLOWS.replace("[orders]}", "[orders]}, state: stopped, source_consumer: {max.poll.records: 400}"))
    (change,) = plan.writes
    assert change.steps == tuple(map(explain, stages(change, "team")))
    assert len(change.steps) == 3
    assert to_json(change)["steps"] == list(change.steps)
    assert all(not each.steps for each in plan.changes if each.action == "no-op")
