"""What carries another owner's mark, or none, is never written, whatever is declared, planned, applied and pruned."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mm2mgr.render import OWNER_KEY
from tests.fake_connect import CLASSES
from tests.plan.site import ON_EAST, Site, actions

STEPS = st.lists(
    st.tuples(st.sets(st.sampled_from(["logs", "orders", "clicks"]), max_size=3), st.booleans(), st.integers(1, 9)),
    min_size=1,
    max_size=3,
)
FOREIGN = st.dictionaries(
    st.sampled_from([*ON_EAST, "theirs", "mm2.a.east.source.clicks", "x y"]),
    st.sampled_from([None, "", "them", "team2", "TEAM", " team"]),
    max_size=4,
)


def declaration(names: set[str], tasks: int) -> str:
    lines = [
        f"  {name}: {{sources: [a], targets: [east], topics: {{include: [{name}]}}, tasks: {{max: {tasks}}}}}"
        for name in sorted(names)
    ]
    return "\n".join(["flows:", *lines]) + "\n" if lines else "flows: {}\n"


def step(site: Site, names: set[str], tasks: int, *, prune: bool) -> None:
    flows = declaration(names, tasks)
    site.apply(site.plan(flows, prune=prune), flows)


@pytest.mark.long
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FOREIGN, STEPS)
def test_foreign_connectors_are_untouched(
    site: Site, foreign: dict[str, str | None], steps: list[tuple[set[str], bool, int]]
) -> None:
    site.east.connectors.clear()
    site.forget()
    for name, owner in foreign.items():
        mark = {} if owner is None else {OWNER_KEY: owner}
        site.east.add(name, {"connector.class": CLASSES[0], "topics": "t", **mark})
    before = {name: dict(site.east.connectors[name].config) for name in foreign}
    for names, prune, tasks in steps:
        step(site, names, tasks, prune=prune)
        assert {name: site.east.connectors[name].config for name in foreign} == before
    written = {one.body["name"] if one.method == "POST" else one.path.split("/")[2] for one in site.east.writes}
    assert not written & foreign.keys()  # not even an identical config: that would restart it


def test_what_is_ours_among_them_is_still_managed(site: Site) -> None:
    site.east.add("theirs", {"connector.class": CLASSES[0], OWNER_KEY: "them"})
    step(site, {"logs", "orders"}, 1, prune=False)
    step(site, {"orders"}, 2, prune=True)
    assert site.names("east") == ["mm2.a.east.checkpoint", "mm2.a.east.heartbeat", "mm2.a.east.source.orders", "theirs"]
    assert site.east.connectors["mm2.a.east.source.orders"].config["tasks.max"] == "2"


def test_two_owners_share_a_connect_cluster(site: Site) -> None:
    step(site, {"logs"}, 1, prune=True)
    site.owner = "others"
    plan = site.plan(declaration({"logs", "clicks"}, 1), prune=True)
    assert actions(plan) == {
        "mm2.a.east.heartbeat": "blocked",
        "mm2.a.east.source.clicks": "create",
        "mm2.a.east.source.logs": "blocked",
        "mm2.a.east.checkpoint": "blocked",
    }
    assert plan.has_failed
