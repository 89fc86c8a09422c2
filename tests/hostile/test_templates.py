"""Templates of a tree that somebody else wrote: they reach no Python, no file outside their folder, and come to an end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mm2mgr.connectors import Connector
from mm2mgr.errors import TemplateError
from mm2mgr.render import render, template_folders
from mm2mgr.topology import Topology
from tests.render.test_templates import COMMON
from tests.spec.trees import BASE, FLOW, expanded


def rendered(topology: Topology, own: Path, text: str) -> Connector:
    (own / "source.properties.j2").write_text(COMMON + text, encoding="utf-8")
    return next(one for one in render(topology, own) if one.type == "source")


def refusal(topology: Topology, own: Path, text: str) -> str:
    with pytest.raises(TemplateError) as caught:
        rendered(topology, own, text)
    return caught.value.message


RUN = "__import__('os').mkdir('ran')"
ESCAPES = {
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "class by item": "{{ ''['__class__'] }}",
    "class by attr": "{{ ''|attr('__class__') }}",
    "class by map": "{{ ['']|map(attribute='__class__')|join }}",
    "class by groupby": "{% for a, b in ['']|groupby('__class__') %}{{ a }}{% endfor %}",
    "class by format": "{{ '{0.__class__}'.format(name) }}",
    "class by format_map": "{{ '{a.__class__}'.format_map({'a': name}) }}",
    "format by attr": "{{ ('{0.__class__.__mro__}'|attr('format'))(name) }}",
    "self": "{{ self.__init__.__globals__ }}",
    "context of self": "{{ self._TemplateReference__context }}",
    "cycler": "{{ cycler.__init__.__globals__.os.mkdir('ran') }}",
    "joiner": "{{ joiner.__init__.__globals__.os.mkdir('ran') }}",
    "namespace": "{{ namespace.__init__.__globals__.os.mkdir('ran') }}",
    "lipsum": "{{ lipsum.__globals__['os'].mkdir('ran') }}",
    "settings": "{{ settings.__self__.environment }}",
    "function of settings": "{{ settings.__func__.__globals__ }}",
    "range": "{{ range.__globals__ }}",
    "dict": "{{ dict.mro() }}",
    "macro": "{% macro m() %}{% endmacro %}{{ m._environment }}",
    "macro's function": "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    "generator": "{{ ([1]|map('string')).gi_frame.f_globals }}",
    "a model's method": "{{ source.model.parse_file('/etc/hostname') }}",
    "a model's pickles": f"{{{{ source.model.parse_raw({RUN!r}, proto='pickle', allow_pickle=True) }}}}",
    "a model's fields": "{{ source.model.model_dump() }}",
    "a class of a field": "{{ source.model.model_fields.labels.annotation('x') }}",
    "a value that changes": "{{ source.client.clear() }}",
    "a list that changes": "{{ [1].append(2) }}",
    "loop": "{% for x in [1] %}{{ loop.__init__.__globals__ }}{% endfor %}",
    "imported module": "{% import '_common.properties.j2' as m with context %}{{ m.__class__ }}",
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("text", ESCAPES.values(), ids=ESCAPES)
def test_no_template_reaches_python(
    topology: Topology, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    message = refusal(topology, own, f"\nx.y = {text}\n")
    assert message.startswith("source.properties.j2:3, connector 'mm2.a.b.source.f': "), message
    assert "SecurityError" in message or "is undefined" in message or "has no attribute" in message
    assert not (tmp_path / "ran").exists()


BOMBS = {
    "nested loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(99) %}{% endfor %}{% endfor %}{% endfor %}",
    "a range": "{{ range(10 ** 11)|list }}",
    "a long text": "{{ 'x' * 10 ** 11 }}",
    "a long list": "{{ [1] * 10 ** 11 }}",
    "a number": "{{ 10 ** (10 ** 11) }}",
    "a text doubled": "{% set n = namespace(t='xx') %}{% for i in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
    "a sum doubled": "{% set n = namespace(t='xx') %}{% for i in range(60) %}{% set n.t = n.t + n.t %}{% endfor %}",
    "a number squared": "{% set n = namespace(t=9) %}{% for i in range(60) %}{% set n.t = n.t * n.t %}{% endfor %}",
    "lists of lists": "{% set n = namespace(a=[], b=[]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% endfor %}{{ n.a == n.b }}",
    "maps of maps": "{% set n = namespace(a={}) %}{% for i in range(60) %}{% set n.a = dict(x=n.a, y=n.a) %}{% endfor %}{{ n.a }}",
    "center": "{{ 'x'|center(10 ** 11) }}",
    "ljust": "{{ 'x'.ljust(10 ** 11) }}",
    "a wide number": "{{ '%100000000000d' % 1 }}",
    "a wide format": "{{ '{:>100000000000}'.format(1) }}",
    "a wide format filter": "{{ '%*d'|format(10 ** 11, 1) }}",
    "digits of a round": "{{ 1.5|round(10 ** 9) }}",
    "replace": "{% set t = 'x' * 99999 %}{{ t|replace('x', t)|replace('x', t) }}",
    "join": "{% set t = 'x' * 99999 %}{{ t.join(t) }}",
    "indent": "{{ 'a'|indent(10 ** 11, first=true) }}",
    "slices": "{{ [1]|slice(10 ** 11)|list }}",
    "batch": "{{ [1]|batch(10 ** 11, 0)|list }}",
    "texts of a map": "{{ range(99999)|map('center', 99999)|join }}",
    "lists added up": "{{ range(9999)|batch(1)|list|sum(start=[]) }}",
    "much inserted": "{% set t = 'x' * 999999 %}{% for i in range(9999) %}{{ t }}{% endfor %}",
    "much written": "{% for i in range(99999) %}" + "x" * 99_999 + "{% endfor %}",
    "macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "a block": "{% block b %}{% for i in range(9999) %}{% for i in range(9999) %}{% endfor %}{% endfor %}{% endblock %}",
    "loops that recurse": "{% for x in range(99) recursive %}{{ loop(range(99)) }}{% endfor %}",
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_what_never_ends_or_fills_memory_is_refused_with_its_line(topology: Topology, own: Path, text: str) -> None:
    message = refusal(topology, own, f"\nx.y = {text}\n")
    assert message.startswith("source.properties.j2:3, connector 'mm2.a.b.source.f': "), message
    assert "steps and characters" in message or "RecursionError" in message or "10,000 bits" in message


def test_a_template_that_includes_itself_twice(topology: Topology, own: Path) -> None:
    again = '{% include "source.properties.j2" %}'
    assert "source.properties.j2:" in refusal(topology, own, f"{again}\n{again}\n")


@pytest.mark.parametrize(
    "text", ["{{ " + "(" * 500 + ")" * 500 + " }}", "{{ " + "-" * 5000 + "1 }}", "{% if 1 %}" * 400]
)
def test_what_nests_too_deeply_is_a_sentence(topology: Topology, own: Path, text: str) -> None:
    assert refusal(topology, own, f"x.y = {text}\n").startswith("source.properties.j2")


def test_a_template_of_many_connectors_has_one_budget_for_all(tmp_path: Path, own: Path) -> None:
    flows = "flows:\n" + "".join(
        f"  f{n}: {{sources: [a], targets: [b], topics: {{include: [t{n}]}}}}\n" for n in range(300)
    )
    text = COMMON + "{% set t = 'x' * 300000 %}\nx.y = {{ t|length }}\n"
    (own / "source.properties.j2").write_text(text, encoding="utf-8")
    with pytest.raises(TemplateError, match="all connectors together take more than 100,000,000 steps and characters"):
        render(expanded(tmp_path / "many", x=BASE + flows), own)


def test_what_is_refused_is_said_without_its_values(tmp_path: Path, own: Path) -> None:
    declared = BASE.replace("[a1:9092]", "[a1:9092], security: {sasl.jaas.config: CANARY}")
    topology = expanded(tmp_path / "secret", x=declared + FLOW)
    message = refusal(topology, own, "x.y = {{ source.model.model_dump() }}\n")
    assert "SecurityError: a template may not call model_dump" in message
    assert "CANARY" not in message


@pytest.mark.parametrize("where", ["file", "folder", "shared part"])
def test_a_link_that_leads_out_of_the_folder_is_refused(
    topology: Topology, tmp_path: Path, own: Path, where: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "canary.j2").write_text("x.y = CANARY\n", encoding="utf-8")
    text = {"file": '{% include "in.j2" %}', "folder": '{% include "in/canary.j2" %}', "shared part": ""}[where]
    link = {"file": own / "in.j2", "folder": own / "in", "shared part": own / "_common.properties.j2"}[where]
    link.symlink_to(outside if where == "folder" else outside / "canary.j2")
    message = refusal(topology, own, text)
    assert f"is a link that leads out of {own}" in message
    assert "CANARY" not in message


def test_links_inside_the_folder_and_to_the_folder_are_followed(topology: Topology, tmp_path: Path, own: Path) -> None:
    (own / "..data").mkdir()  # as Kubernetes mounts a ConfigMap
    shipped = (template_folders(None)[-1] / "source.properties.j2").read_text(encoding="utf-8")
    (own / "..data" / "source.properties.j2").write_text(shipped + "x.y = 1\n", encoding="utf-8")
    (own / "source.properties.j2").symlink_to("..data/source.properties.j2")
    (tmp_path / "linked").symlink_to(own)
    for folder in (own, tmp_path / "linked"):
        assert next(one for one in render(topology, folder) if one.type == "source").config["x.y"] == "1"


def test_a_path_cannot_climb(topology: Topology, tmp_path: Path, own: Path) -> None:
    (tmp_path / "canary.j2").write_text("x.y = CANARY\n", encoding="utf-8")
    assert "CANARY" not in refusal(topology, own, "{% include '../canary.j2' %}")


def test_a_template_that_is_a_pipe_or_huge(topology: Topology, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mm2mgr.files.PIPE_SECONDS", 0.05)
    os.mkfifo(own / "pipe.j2")
    assert "it is a pipe, and nothing was written to it" in refusal(topology, own, "{% include 'pipe.j2' %}")
    assert "is larger than 1 MB" in refusal(topology, own, "#" * 1_000_001)


def test_what_templates_are_for_still_works(topology: Topology, own: Path) -> None:
    text = """
{% macro client(of) %}mirror-{{ of.alias }}{% endmacro %}
{% set n = namespace(count=0) %}
{% for key, value in source.client.items() %}{% set n.count = n.count + 1 %}{% endfor %}
{% for one in ['a', 'b'] if one != 'c' %}
{{ settings(one ~ ".", {"k": "v"}) }}
{{ settings(one ~ ".at.", {"k": loop.index ~ loop.cycle('x', 'y')}) }}
{% endfor %}
count = {{ n.count }}
upper = {{ source.alias.upper() ~ '-' ~ target.alias|upper }}
joined = {{ topics.split(',')|map('trim')|join(';') }}
format = {{ '%05d' % 7 }}{{ '{:>3}'.format(8) }}{{ "%s"|format(9) }}
replace = {{ 'a.b'|replace('.', '_') }}{{ 'a.b'.replace('.', '-') }}
pick = {{ {'a': 1}['a'] }}{{ dict(b=2).b }}{{ range(3)|list|length }}{{ (1, 2)|max }}{{ missing|default(5) }}
{{ settings("x.", {"k": "v"}) }}
"""
    config = rendered(topology, own, text).config
    assert [config[key] for key in ("a.at.k", "b.at.k", "count", "upper", "joined")] == ["1x", "2y", "1", "A-B", "t"]
    assert [config[key] for key in ("format", "replace", "pick")] == ["00007  89", "a_ba-b", "12325"]
    assert [config[key] for key in ("a.k", "b.k", "x.k")] == ["v", "v", "v"]
