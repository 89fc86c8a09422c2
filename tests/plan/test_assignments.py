"""Plan and apply leave the assignment of the Connect plugin as it runs, and bring a flow to the plugin only where every worker has it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from mm2mgr.assignment_text import ASSIGNMENT_KEY, PLUGIN_CLASS
from mm2mgr.connect.client import plugins_of_workers
from mm2mgr.connect.target import BasicAuth, ConnectTarget
from mm2mgr.connect.types import PluginsOfWorkers
from mm2mgr.errors import TemplateError
from mm2mgr.kafka.worker_groups import WorkerGroup
from mm2mgr.plan.changes import Change, Plan
from mm2mgr.render import CLASSES, render
from mm2mgr.spec.files import load
from tests.asking import topics_with
from tests.fake_connect import FakeConnect, serving
from tests.plan.site import Site, errors
from tests.spec.trees import write

TEXT = "version=1;rates=900+700;unlisted=10;orders:0-1@0+2-3@1"
NEWER = "version=2;something=else"
NAME = "mm2.a.east.source.orders"
ALONE = "heartbeats: false, checkpoints: false"


def flow(more: str = "", *, balance: str | None = "plugin", topics: str = "orders", name: str = "orders") -> str:
    by = f", balance: {balance}" if balance else ""
    settings = f"topics: {{include: [{topics}]}}, tasks: {{max: 2}}, {ALONE}{by}{more}"
    workers = "defaults: {connect: {workers: {count: 1}}}"
    return f"flows:\n  {name}: {{sources: [a], targets: [east], {settings}}}\n{workers}\n"


@pytest.fixture
def east(site: Site) -> Site:
    """A site whose workers have the plugin."""
    topics = {"orders": 4, "logs": 2}
    assert site.kafka
    site.kafka["a"] = topics_with(topics)
    site.east.source_topics = topics
    site.east.plugins[PLUGIN_CLASS] = "1.0"
    return site


def config(site: Site, name: str = NAME) -> dict[str, str]:
    return site.east.connectors[name].config


def rebalanced(site: Site, text: str = TEXT) -> None:
    """Run the flow with an assignment, as `rebalance` leaves it."""
    assert not errors(site.converge(flow()))
    config(site)[ASSIGNMENT_KEY] = text


def test_a_new_connector_of_the_plugin_begins_without_an_assignment(east: Site) -> None:
    plan = east.plan(flow())
    [key] = [key for change in plan.changes for key in change.keys if key.key == "connector.class"]
    assert key.after == PLUGIN_CLASS
    assert "spec" in key.origin
    assert not errors(east.apply(plan, flow()))
    assert config(east)["connector.class"] == PLUGIN_CLASS
    assert ASSIGNMENT_KEY not in config(east)
    assert east.plan(flow()).is_empty


def test_an_assignment_that_runs_is_no_difference_and_goes_along(east: Site) -> None:
    rebalanced(east)
    assert east.plan(flow()).is_empty
    tuned = flow(", source_consumer: {max.poll.records: 400}")
    plan = east.plan(tuned)
    assert [key.key for change in plan.changes for key in change.keys] == ["source.consumer.max.poll.records"]
    assert not errors(east.apply(plan, tuned)), "the digest of the tasks is that of the text"
    assert config(east)[ASSIGNMENT_KEY] == TEXT
    assert config(east)["source.consumer.max.poll.records"] == "400"


def test_it_goes_along_where_the_connector_gets_another_name(east: Site) -> None:
    rebalanced(east)
    east.east.add_offsets(NAME, "orders", {0: 5}, alias="a")
    renamed = flow(", connector_name: orders-east")
    moved = renamed + f"moved: [{{from: east/{NAME}, to: orders:a->east}}]\n"
    assert not errors(east.converge(moved))
    assert config(east, "orders-east")[ASSIGNMENT_KEY] == TEXT
    assert NAME not in east.east.connectors


def test_a_part_of_a_flow_that_moves_leaves_the_rest_its_assignment(east: Site) -> None:
    both = flow(topics="orders, logs")
    assert not errors(east.converge(both))
    config(east)[ASSIGNMENT_KEY] = TEXT
    east.east.add_offsets(NAME, "logs", {0: 5}, alias="a")
    apart = flow().replace(
        "defaults:", f"  logs: {{sources: [a], targets: [east], topics: {{include: [logs]}}, {ALONE}}}\ndefaults:"
    )
    apart += 'moved: [{from: "orders:a->east", to: "logs:a->east", topics: [logs]}]\n'
    assert not errors(east.converge(apart))
    assert config(east)[ASSIGNMENT_KEY] == TEXT
    assert ASSIGNMENT_KEY not in config(east, "mm2.a.east.source.logs")
    assert east.plan(apart).is_empty


def test_back_to_stock_takes_it_away(east: Site) -> None:
    rebalanced(east)
    plan = east.plan(flow(balance=None))
    kinds = {key.key: key.kind for change in plan.changes for key in change.keys}
    assert kinds == {"connector.class": "change", ASSIGNMENT_KEY: "remove"}
    assert not errors(east.apply(plan, flow(balance=None)))
    assert config(east)["connector.class"] == CLASSES["source"]
    assert ASSIGNMENT_KEY not in config(east)


def test_what_lies_in_the_config_of_the_stock_class_is_no_assignment(east: Site) -> None:
    assert not errors(east.converge(flow(balance="stock")))
    config(east)[ASSIGNMENT_KEY] = TEXT
    assert not errors(east.converge(flow()))
    assert config(east)["connector.class"] == PLUGIN_CLASS
    assert ASSIGNMENT_KEY not in config(east)


def test_a_text_that_cannot_be_read_is_told_and_stays(east: Site) -> None:
    rebalanced(east, NEWER)
    plan = east.plan(flow())
    assert plan.is_empty
    assert not plan.has_failed
    [warning] = [warning for change in plan.changes for warning in change.warnings]
    assert "is of version 2, and this mm2mgr reads version 1" in warning
    assert "it stays as it runs" in warning


def test_fewer_tasks_than_the_assignment_has_are_blocked_by_name(east: Site) -> None:
    rebalanced(east)
    plan = east.plan(flow().replace("max: 2", "max: 1"))
    [change] = plan.changes
    assert change.action == "blocked"
    assert "assignment has 2 tasks, and tasks.max would be 1" in change.reason
    assert "balance: stock" in change.remedy
    assert config(east)[ASSIGNMENT_KEY] == TEXT


def test_what_moves_is_not_counted_by_the_stock_way_of_dealing(east: Site) -> None:
    assert not errors(east.converge(flow(balance=None)))
    assert east.plan(flow()).price.moved is None


def test_defaults_a_flow_and_a_pair_may_say_it_in_either_form(tmp_path: Path) -> None:
    text = """\
owner: team
clusters:
  a: {bootstrap_servers: 'a:9092'}
  b: {bootstrap_servers: 'b:9092'}
  c: {bootstrap_servers: 'c:9092'}
connect:
  b: {url: 'http://b:8083', kafka: b}
  c: {url: 'http://c:8083', kafka: c}
defaults: {flows: {balance: plugin}}
flows:
  x: {sources: [a], targets: [b], topics: {include: [x]}}
  y: {sources: [a], targets: [b, c], topics: {include: [y]}, balance: {by: stock}, pairs: {a->c: {balance: plugin}}}
"""
    from mm2mgr.expand import expand

    topology = expand(load([write(tmp_path, x=text)]))
    by_flow = {c.flows[0]: c.config["connector.class"] for c in render(topology) if c.type == "source"}
    stock = CLASSES["source"]
    assert by_flow == {"x:a->b": PLUGIN_CLASS, "y:a->b": stock, "y:a->c": PLUGIN_CLASS}
    checks = [c.config["connector.class"] for c in render(topology) if c.type != "source"]
    assert PLUGIN_CLASS not in checks
    folder = tmp_path / "templates"
    folder.mkdir()
    (folder / "source.properties.j2").write_text(
        "name = {{ name }}\nconnector.class = MirrorSourceConnector\nmm2mgr.owner = {{ owner }}\n"
    )
    with pytest.raises(TemplateError, match=r"mm2mgr[.]connect[.]AssignedMirrorSourceConnector is missing"):
        render(topology, folder)


# --- the guard --------------------------------------------------------------------------------------------------------


def only(plan: Plan) -> Change:
    [change] = plan.changes
    return change


def test_the_plugin_waits_until_each_worker_has_it(east: Site) -> None:
    bare = FakeConnect(cluster_id="east")
    bare.plugins = dict(east.east.plugins)
    del bare.plugins[PLUGIN_CLASS]
    assert not errors(east.converge(flow(balance=None)))
    before = dict(config(east))
    two = flow().replace("count: 1", "count: 2")
    undeclared = only(east.plan(flow().replace("count: 1", "network: 1 MB/s")))
    assert undeclared.action == "blocked"
    assert "how many workers 'east' has is not declared" in undeclared.reason
    assert "workers: {count: …}" in undeclared.remedy
    one_of_two = only(east.plan(two))
    assert "1 of the 2 workers of 'east' answered" in one_of_two.reason
    assert "under url:" in one_of_two.remedy
    with serving(bare) as url:
        address = url.removeprefix("http://")
        own = east.urls["east"].removeprefix("http://")
        east.east.worker_ids = {None: own, 0: own, 1: address}
        lacking = only(east.plan(two))
        assert lacking.action == "blocked"
        assert f"{address} of 'east' has no {PLUGIN_CLASS}" in lacking.reason
        assert "mm2mgr plugin write" in lacking.remedy
        bare.plugins[PLUGIN_CLASS] = "0.9"
        assert "too old for this assignment, which needs version 1" in only(east.plan(two)).reason
        assert not errors(east.apply(east.plan(two), two))
        assert config(east) == before, "blocked is untouched"
        bare.plugins[PLUGIN_CLASS] = "1.0"
        assert not errors(east.converge(two))
        assert config(east)["connector.class"] == PLUGIN_CLASS
        del bare.plugins[PLUGIN_CLASS]
        tuned = two.replace("balance: plugin", "balance: plugin, source_consumer: {max.poll.records: 400}")
        assert only(east.plan(tuned)).action == "blocked"
        back = only(east.plan(two.replace("balance: plugin", "balance: stock")))
        assert back.action == "update", "going back is never blocked"
    gone = only(east.plan(tuned))
    assert gone.action == "update", "what runs already is not stopped by a worker that is down"
    assert any("answered whether they have the plugin" in warning for warning in gone.warnings)


def test_the_group_of_the_workers_tells_an_idle_one(east: Site) -> None:
    own, gone = east.urls["east"].removeprefix("http://"), "127.0.0.1:1"
    bare = FakeConnect(cluster_id="east")
    undeclared = flow().replace("count: 1", "network: 1 MB/s")
    assert not errors(east.converge(flow(balance=None)))
    with serving(bare) as url:
        idle = url.removeprefix("http://")
        others = WorkerGroup("others", ("elsewhere:8083",))

        def reason(tree: str, *workers: str, untold: int = 0) -> str:
            east.worker_groups["east"] = (others, WorkerGroup("connect-east", workers, untold))
            change = only(east.plan(tree))
            return change.reason if change.action == "blocked" else change.action

        lacking = reason(undeclared, own, idle)
        assert f"{idle} of 'east' has no {PLUGIN_CLASS}" in lacking, "an idle worker is asked, too"
        assert lacking.count("AssignedMirrorSourceConnector") == 1, "once"
        bare.plugins[PLUGIN_CLASS] = "1.0"
        assert reason(undeclared, own, idle) == "update", "the group tells how many there are"
        assert "2 of the 3 workers of 'east' answered" in reason(undeclared, own, idle, gone)
        assert "2 of the 3 workers of 'east' answered" in reason(flow(), own, idle, gone), "more than are declared"
        three = flow().replace("count: 1", "count: 3")
        assert "2 of the 3 workers of 'east' answered" in reason(three, own, idle), "one that is declared is down"
        assert "1 member of their group did not tell an address of their own" in reason(undeclared, own, untold=1)
        alias = own.replace("127.0.0.1", "localhost")
        assert "1 of the 2 workers of 'east' answered" in reason(undeclared, own, alias), "one answer is of one worker"
        east.east.worker_ids = {None: idle, 0: idle, 1: idle}
        assert f"{idle} runs tasks, and is no member of their group" in reason(undeclared, own), "the group of others"
        assert reason(undeclared, own, idle) == "update"
        east.east.worker_ids = {None: own, 0: own, 1: own}
        assert "no group of Connect workers on Kafka cluster 'east' has one of those known here" in reason(
            undeclared, idle
        )
        assert reason(flow(), idle) == "update", "what is declared counts where the group is not known"
        del east.worker_groups["east"]
        unread = only(east.plan(undeclared))
        assert "their group could not be read: no broker answered" in unread.reason
        assert reason(undeclared, own, idle) == "update"
        assert not errors(east.apply(east.plan(undeclared), undeclared))
        assert config(east)["connector.class"] == PLUGIN_CLASS


def test_that_the_worker_of_the_url_lacks_it_is_told_once(east: Site) -> None:
    assert not errors(east.converge(flow(balance=None)))
    del east.east.plugins[PLUGIN_CLASS]
    change = only(east.plan(flow()))
    assert change.action == "blocked"
    assert change.reason.count(PLUGIN_CLASS) == 1, change.reason
    assert change.remedy.count("mm2mgr plugin write") == 1, change.remedy


def test_workers_are_counted_once_and_only_urls_get_credentials() -> None:
    first, second = FakeConnect(basic=("me", "secret")), FakeConnect()
    first.plugins[PLUGIN_CLASS] = second.plugins[PLUGIN_CLASS] = "1.0"
    with serving(first) as url, serving(second) as other:
        ids = url.removeprefix("http://"), other.removeprefix("http://")

        def ask(urls: tuple[str, ...], workers: tuple[str, ...]) -> PluginsOfWorkers:
            target = ConnectTarget("east", urls, BasicAuth("me", "secret"))
            return asyncio.run(plugins_of_workers(target, workers, 5.0))

        assert ask((url,), ()).count == 1
        assert ask((url, other), ()).count == 2, "an idle one has a URL and no id"
        assert ask((url,), ids).count == 2
        assert ask((url, other), ids).count == 2
        assert ask((url.replace("127.0.0.1", "localhost"), url), ids[:1]).count == 1, (
            "one worker, whatever it is called"
        )
        assert ask((url,), ids[1:]).count == 1, "that URL may be a gateway to this worker"
        [_, refused] = ask((other,), ids[::-1]).workers
        assert refused.worker == ids[0]
        assert "401" in refused.failure, "a status may name any host, so credentials do not go there"


def test_no_worker_answers_for_another_that_is_down() -> None:
    with serving(FakeConnect()) as url:
        target = ConnectTarget("east", (url, "http://127.0.0.1:1"))
        target = replace(target, renewed=lambda: target)
        answers = asyncio.run(plugins_of_workers(target, (), 5.0))
    assert answers.count == 1
    assert [answer.worker for answer in answers.workers if answer.failure] == ["http://127.0.0.1:1"]


def test_whatever_a_status_names_as_a_worker_the_others_are_asked() -> None:
    first = FakeConnect()
    first.plugins[PLUGIN_CLASS] = "1.0"
    odd = ("user:secret@127.0.0.1:1", "exa mple:80", "[::1:80", "\x1b[31m:80", "w" * 300 + ":80", "-:1", "w:99999", "")
    with serving(first) as url:
        answers = asyncio.run(plugins_of_workers(ConnectTarget("east", (url,)), odd, 2.0))
    assert answers.count == 1
    assert all(answer.failure for answer in answers.workers if answer.worker != url)
    assert not any("secret" in answer.failure for answer in answers.workers)


@pytest.mark.parametrize("seed", range(4))
def test_random_estates_keep_their_assignments(east: Site, seed: int) -> None:
    random = Random(seed)
    topics = {f"t{number}": random.randint(2, 5) for number in range(4)}
    assert east.kafka
    east.kafka["a"] = topics_with(topics)
    east.east.source_topics = topics

    def tree(balances: dict[str, str], count: str, polls: int) -> str:
        names = random.sample(sorted(topics), len(topics))
        lines = [
            f"  {name}: {{sources: [a], targets: [east], topics: {{include: [{name}]}}, tasks: {{max: 2}}, {ALONE},"
            f" balance: {balances[name]}, source_consumer: {{max.poll.records: {polls}}}}}"
            for name in names
        ]
        return "\n".join(["flows:", *lines, f"defaults: {{connect: {{workers: {{{count}}}}}}}", ""])

    def name_of(topic: str) -> str:
        return f"mm2.a.east.source.{topic}"

    balances = {topic: random.choice(["plugin", "stock"]) for topic in topics}
    assert not errors(east.converge(tree(balances, "count: 1", 100)))
    texts = {}
    for topic, by in balances.items():
        if by == "plugin":
            texts[topic] = f"version=1;rates=5+5;unlisted=1;{topic}:{random.randint(0, 1)}@{random.randint(0, 1)}"
            config(east, name_of(topic))[ASSIGNMENT_KEY] = texts[topic]
    assert east.plan(tree(balances, "count: 1", 100)).is_empty
    later = {topic: random.choice(["plugin", "stock"]) for topic in topics}
    begins = {topic for topic in topics if later[topic] == "plugin" and balances[topic] == "stock"}
    before = {topic: dict(config(east, name_of(topic))) for topic in topics}
    first, second = (east.plan(tree(later, "count: 2", 200)) for _ in range(2))
    what, again = (
        sorted(
            (c.connector, c.action, c.reason, c.warnings, repr(c.config and sorted(c.config.items())))
            for c in plan.changes
        )
        for plan in (first, second)
    )
    assert what == again, "order means nothing"
    assert {change.connector for change in first.changes if change.action == "blocked"} == set(map(name_of, begins))
    assert not errors(east.apply(first, tree(later, "count: 2", 200)))
    for topic in topics:
        after = config(east, name_of(topic))
        assert (after == before[topic]) == (topic in begins), topic
        assert after.get(ASSIGNMENT_KEY) == (texts.get(topic) if later[topic] == "plugin" else None)
