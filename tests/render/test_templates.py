"""Templates of users: they outrank mm2mgr's own one by one, say which line wrote a value, and fail by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mm2mgr.connectors import Connector
from mm2mgr.errors import TemplateError
from mm2mgr.render import render, template_folders
from mm2mgr.templating.restricted_jinja import Environment
from mm2mgr.topology import Topology
from tests.spec.trees import BASE, FLOW, expanded

SHIPPED = template_folders(None)[-1]
SOURCE = (SHIPPED / "source.properties.j2").read_text(encoding="utf-8")
COMMON = '{% include "_common.properties.j2" %}\n'


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    return expanded(tmp_path / "tree", x=BASE + FLOW)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def rendered(topology: Topology, own: Path, text: str, name: str = "source") -> Connector:
    (own / f"{name}.properties.j2").write_text(text, encoding="utf-8")
    return next(one for one in render(topology, own) if one.type == name.strip("_") or name.startswith("_"))


def refusal(topology: Topology, own: Path, text: str) -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        rendered(topology, own, text)
    return caught.value


def test_a_users_template_outranks_ours_and_the_others_stay(topology: Topology, own: Path) -> None:
    connector = rendered(topology, own, SOURCE + "offset.lag.max = 7\n")
    assert connector.config["offset.lag.max"] == "7"
    line = SOURCE.count("\n") + 1
    assert str(connector.origins["offset.lag.max"]) == f"template source.properties.j2:{line}"
    assert connector.origins["tasks.max"].kind == "default"
    assert [one.type for one in render(topology, own)] == ["heartbeat", "source", "checkpoint"]


def test_a_template_with_statements_of_its_own_gives_what_the_shipped_one_gives(tmp_path: Path, own: Path) -> None:
    flows = (
        FLOW + "  other:\n    sources: [a]\n    targets: [b]\n    topics: {include: [x, 'y.*']}\n    tasks: {max: 3}\n"
    )
    topology = expanded(tmp_path / "two", x=BASE + flows)
    general = '{% set unused = "any statement but a condition" %}\n' + SOURCE
    (own / "source.properties.j2").write_text(general, encoding="utf-8")
    shipped, ours = render(topology), render(topology, own)
    assert [one.config for one in ours] == [one.config for one in shipped]
    # The lines of the template moved down by one, and nothing else may differ.
    assert [[str(o) for o in one.origins.values() if o.kind != "template"] for one in ours] == [
        [str(o) for o in one.origins.values() if o.kind != "template"] for one in shipped
    ]


@pytest.mark.parametrize("line", ["a.b = {{ true }}", "a.b = {{ source.alias == 'a' }}"])
def test_an_expression_is_evaluated_for_each_connector(topology: Topology, own: Path, line: str) -> None:
    assert rendered(topology, own, SOURCE + line + "\n").config["a.b"] == "True"


def test_a_condition_on_more_than_texts_is_asked_for_each_flow(tmp_path: Path, own: Path) -> None:
    clusters = BASE.replace("connect:", "  c: {bootstrap_servers: [c1:9092]}\nconnect:")
    topology = expanded(tmp_path / "two", x=clusters + FLOW.replace("sources: [a]", "sources: [a, c]"))
    text = SOURCE + "{% if source.alias == 'c' %}\nonly.c = yes\n{% endif %}\n"
    (own / "source.properties.j2").write_text(text, encoding="utf-8")
    sources = [one for one in render(topology, own) if one.type == "source"]
    assert {one.config["source.cluster.alias"]: one.config.get("only.c") for one in sources} == {"a": None, "c": "yes"}


def test_rendering_again_compiles_only_what_changed(
    topology: Topology, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rendered(topology, own, SOURCE + "offset.lag.max = 7\n")
    compiled = list[str]()
    compile_ = Environment.compile

    def counted(self: Environment, source: str, name: str, *more: Any) -> Any:
        compiled.append(name)
        return compile_(self, source, name, *more)

    monkeypatch.setattr(Environment, "compile", counted)
    assert rendered(topology, own, SOURCE + "offset.lag.max = 7\n") == first
    assert compiled == []
    assert rendered(topology, own, SOURCE + "offset.lag.max = 8\n").config["offset.lag.max"] == "8"
    assert compiled == ["source.properties.j2"]


def test_a_users_shared_part_reaches_all_three(topology: Topology, own: Path) -> None:
    common = (
        (SHIPPED / "_common.properties.j2").read_text(encoding="utf-8").replace("errors.tolerance = none", "x.y = 1")
    )
    rendered(topology, own, common, "_common")
    assert [one.config["x.y"] for one in render(topology, own)] == ["1", "1", "1"]


@pytest.mark.parametrize(
    "line",
    ["a.b = {{ 5 }}", "a.b = {{ 2 + 3 }}", "a.b = {% if true %}{{ '5' }}{% endif %}", "  a.b=5  ", "a.b = {{ '5' }}\r"],
)
def test_constants_in_a_template_are_the_same_in_every_connector(tmp_path: Path, own: Path, line: str) -> None:
    second = FLOW.replace("flows:\n", "").replace("f:", "g:", 1).replace("[t]", "[u]")
    topology = expanded(tmp_path / "two", x=BASE + FLOW + second)
    (own / "source.properties.j2").write_text(f"{line}\n{COMMON}", encoding="utf-8")
    sources = [one for one in render(topology, own) if one.type == "source"]
    assert [(one.config["a.b"], one.config["name"]) for one in sources] == [
        ("5", "mm2.a.b.source.f"),
        ("5", "mm2.a.b.source.g"),
    ]


def test_a_line_of_several_parts_takes_the_origin_of_what_it_inserts(topology: Topology, own: Path) -> None:
    connector = rendered(topology, own, COMMON + "client.id = mirror-{{ tasks_max }}-of-{{ source.alias }}\n")
    assert connector.config["client.id"] == "mirror-1-of-a"
    assert connector.origins["client.id"].where == "mm2mgr: not sized yet (mm2mgr size)"


def test_comments_and_empty_lines_are_no_keys(topology: Topology, own: Path) -> None:
    connector = rendered(topology, own, "# one = 1\n\n   # two = 2\n{# three = 3 #}\n" + COMMON)
    assert not {"one", "two", "three", "#"} & connector.config.keys()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            COMMON + "a = {{ nothing_here }}\n",
            "source.properties.j2:2, connector 'mm2.a.b.source.f': UndefinedError: 'noth",
        ),
        (COMMON + "a = {{ source.nothing }}\n", "source.properties.j2:2, connector 'mm2.a.b.source.f': UndefinedError"),
        (COMMON + "{% if nothing_here %}a = 1{% endif %}\n", "'nothing_here' is undefined"),
        (COMMON + "\na = {{ }}\n", "source.properties.j2:3: "),
        (COMMON + "{% include 'absent.j2' %}\n", "absent.j2"),
        (COMMON + "a = {{ 1 / 0 }}\n", "source.properties.j2:2, connector 'mm2.a.b.source.f': ZeroDivisionError"),
        (COMMON + "a = {{ 'x' + 1 }}\n", "source.properties.j2:2, connector 'mm2.a.b.source.f': TypeError"),
        (COMMON + "just words\n", "source.properties.j2: not a `key = value` line: 'just words'"),
        (
            COMMON + "errors.tolerance = all\n",
            "source.properties.j2:2, connector 'mm2.a.b.source.f': the key 'errors.tole",
        ),
        ("a = 1\n", "the template must write name = mm2.a.b.source.f"),
        (COMMON.replace("_common", "_mine"), "_mine.properties.j2"),
    ],
)
def test_a_broken_template_is_named(topology: Topology, own: Path, text: str, says: str) -> None:
    assert says in refusal(topology, own, text).message


@pytest.mark.parametrize("key", ["name", "mm2mgr.owner"])
def test_names_and_ownership_are_not_for_templates_to_change(topology: Topology, own: Path, key: str) -> None:
    common = (SHIPPED / "_common.properties.j2").read_text(encoding="utf-8").splitlines()
    (own / "_common.properties.j2").write_text(
        "\n".join(f"{key} = other" if line.startswith(f"{key} =") else line for line in common), encoding="utf-8"
    )
    with pytest.raises(TemplateError, match=f"the template must write {key} = "):
        render(topology, own)


def test_a_key_given_twice_says_who_gave_it_first(tmp_path: Path, own: Path) -> None:
    topology = expanded(tmp_path, x=BASE + FLOW + "    source_connector: {offset.lag.max: 5}\n")
    twice = f'{COMMON}\noffset.lag.max = 7\n{{{{ settings("", connector) }}}}\n'
    (own / "source.properties.j2").write_text(twice, encoding="utf-8")
    with pytest.raises(TemplateError, match=r"the key 'offset\.lag\.max' is written twice") as caught:
        render(topology, own)
    assert "template source.properties.j2:" in (caught.value.hint or "")


def test_a_folder_of_templates_that_is_not_there(topology: Topology, tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="no such folder"):
        render(topology, tmp_path / "typo")


def test_a_template_that_is_no_text(topology: Topology, own: Path) -> None:
    (own / "source.properties.j2").write_bytes(b"a = \xe9\n")
    with pytest.raises(TemplateError, match=r"source\.properties\.j2"):
        render(topology, own)


def test_names_that_would_collide_are_refused(tmp_path: Path) -> None:
    text = """\
owner: team
clusters:
  a: {bootstrap_servers: [a:1]}
  b.c: {bootstrap_servers: [b:1]}
  a.b: {bootstrap_servers: [c:1]}
  c: {bootstrap_servers: [d:1]}
connect: {w: {url: "http://w", kafka: c}}
defaults: {flows: {separator: _, run_on: w, topics: {include: [t]}}}
flows:
  one: {sources: [a], targets: [b.c]}
  two: {sources: [a.b], targets: [c]}
"""
    with pytest.raises(TemplateError, match=r"two connectors would have the name 'mm2\.a\.b\.c\.heartbeat'"):
        render(expanded(tmp_path, x=text))


@pytest.mark.parametrize(
    ("version", "wanted"),
    [("", None), ("'4.2'", None), ("'4.3'", "legacy,new"), ("8.3.0-ccs", "legacy,new"), ("'5.0'", None)],
)
def test_both_names_of_metrics_are_emitted_where_the_workers_know_both(
    tmp_path: Path, version: str, wanted: str | None
) -> None:
    """KIP-1280: the key is of 4.3, and the old names go with 5.0."""
    tree = BASE.replace("kafka: b", f"kafka: b, version: {version}" if version else "kafka: b") + FLOW
    found = {one.type: one.config.get("metric.names.formats") for one in render(expanded(tmp_path / "tree", x=tree))}
    assert found == {"source": wanted, "checkpoint": wanted, "heartbeat": None}


def test_people_may_choose_the_names_of_metrics(tmp_path: Path) -> None:
    tree = BASE.replace("kafka: b", "kafka: b, version: '4.3'") + FLOW
    tree += (
        "    source_connector: {metric.names.formats: new}\n    checkpoint_connector: {metric.names.formats: null}\n"
    )
    found = {one.type: one.config.get("metric.names.formats") for one in render(expanded(tmp_path / "tree", x=tree))}
    assert (found["source"], found["checkpoint"]) == ("new", None)
