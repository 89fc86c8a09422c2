"""init, schema and render: what they print, what they never overwrite, and what they never show."""

from __future__ import annotations

import re

import pytest

from mm2mgr import __version__
from mm2mgr.cli import cli
from tests.spec.trees import BASE, FLOW, write

from .command import Command

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="mirror" password="pa55-of-a";'
SECRETS = BASE.replace(
    "a: {bootstrap_servers: [a1:9092]}",
    "a: {bootstrap_servers: [a1:9092], security: {protocol: SASL_SSL, sasl.mechanism: PLAIN, "
    f"sasl.jaas.config: '{JAAS}', ssl.truststore.password: trusted-word}}}}",
).replace(
    "b: {bootstrap_servers: [b1:9092]}",
    'b: {bootstrap_servers: [b1:9092], security: {protocol: SSL, ssl.key.password: "${file:/etc/b.properties:key}"}}',
)


def test_init_writes_a_tree_that_renders(mm2mgr: Command) -> None:
    said = mm2mgr("init")
    assert said.lines == ["clusters/clusters.yaml", "clusters/flows.yaml"]
    assert "next: write your addresses into clusters.yaml and your topics into flows.yaml; then" in said.err
    assert re.findall(r"^  mm2mgr (\w+) +#", said.err, re.MULTILINE) == ["lint", "check", "plan", "apply"]
    assert "mm2mgr --clusters 'my tree' plan" in mm2mgr("init", "my tree").err
    rendered = mm2mgr("render", "-o", "json").json
    assert sorted(each["type"] for each in rendered) == ["checkpoint", "heartbeat", "source"]


@pytest.mark.parametrize("kept", ["clusters.yaml", "flows.yaml"])
def test_init_never_overwrites(mm2mgr: Command, kept: str) -> None:
    mm2mgr.tree.mkdir()
    (mm2mgr.tree / kept).write_text("owner: mine\n")
    before = mm2mgr.files()
    said = mm2mgr("init", code=1)
    assert said.out == ""
    assert said.err == (
        f"error: clusters/{kept} exists already; nothing was written\nhint: name another folder: mm2mgr init FOLDER\n"
    )
    assert mm2mgr.files() == before
    mm2mgr("init", "other")
    assert (mm2mgr.folder / "other" / kept).is_file()


def test_the_schema_is_json(mm2mgr: Command) -> None:
    said = mm2mgr("schema")
    assert {"owner", "clusters", "connect", "flows"} <= said.json["properties"].keys()
    assert said.err == ""


def test_render_masks_secrets_and_keeps_placeholders(mm2mgr: Command) -> None:
    write(mm2mgr.tree, x=SECRETS + FLOW)
    for arguments in (
        ["render"],
        ["render", "--origins"],
        ["render", "-o", "json"],
        ["render", "-o", "json", "--origins"],
    ):
        said = mm2mgr(*arguments)
        assert "pa55-of-a" not in said.out + said.err
        assert "trusted-word" not in said.out + said.err
        assert "${file:/etc/b.properties:key}" in said.out
        assert "[hidden]" in said.out
        assert "ScramLoginModule required username=" in said.out  # of a JAAS string only the secret part is hidden


def test_render_as_json_and_as_text_say_the_same(mm2mgr: Command) -> None:
    write(mm2mgr.tree, x=SECRETS + FLOW)
    rendered = mm2mgr("render", "-o", "json").json
    lines = [f"# {each['connector']} on Connect cluster w" for each in rendered]
    lines += [f"{key} = {value}" for each in rendered for key, value in each["config"].items()]
    assert sorted(line for line in mm2mgr("render").lines if line) == sorted(lines)


def test_render_says_who_said_each_value(mm2mgr: Command) -> None:
    write(mm2mgr.tree, x=BASE + FLOW + "    tasks: {max: 3}\n")
    (source,) = [each for each in mm2mgr("render", "f", "--origins", "-o", "json").json if each["type"] == "source"]
    assert source["config"]["tasks.max"] == "3"
    assert "clusters/x.yaml:12" in source["origins"]["tasks.max"]
    assert source["origins"].keys() == source["config"].keys()


def test_render_of_one_flow_leaves_the_others_out(mm2mgr: Command) -> None:
    write(mm2mgr.tree, x=BASE + FLOW + "  g: {sources: [a], targets: [b], topics: {include: [u]}}\n")
    names = [each["connector"] for each in mm2mgr("render", "g", "-o", "json").json]
    assert "mm2.a.b.source.g" in names
    assert "mm2.a.b.source.f" not in names


def test_the_tree_can_come_from_the_environment_or_as_files(mm2mgr: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = write(mm2mgr.folder / "elsewhere", x=BASE, y=FLOW)
    named = mm2mgr("-f", tree / "x.yaml", "-f", tree / "y.yaml", "render", "-o", "json").json
    monkeypatch.setenv("MM2MGR_CLUSTERS", str(tree))
    assert mm2mgr("render", "-o", "json").json == named


def test_own_templates_outrank_the_shipped_ones(mm2mgr: Command) -> None:
    write(mm2mgr.tree, x=BASE + FLOW)
    templates = mm2mgr.folder / "mine"
    templates.mkdir()
    (templates / "source.properties.j2").write_text("name = {{ name }}\nmine = {{ nope }}\n")
    said = mm2mgr("--templates", templates, "render", code=1)
    assert said.out == ""
    assert "source.properties.j2" in said.err


@pytest.mark.parametrize("command", ["", *sorted(cli.commands), "sandbox up", "sandbox status", "sandbox down"])
def test_help_goes_to_stdout_and_ends_well(mm2mgr: Command, command: str) -> None:
    said = mm2mgr(*command.split(), "--help")
    assert said.out.startswith(f"Usage: mm2mgr{' ' + command if command else ''} ")
    assert said.err == ""


def test_the_version_is_printed(mm2mgr: Command) -> None:
    assert mm2mgr("--version").out == f"mm2mgr, version {__version__}\n"


@pytest.mark.parametrize("form", ["json", "strimzi", "properties"])
def test_render_for_another_tool_writes_nothing_where_a_secret_is_in_clear(mm2mgr: Command, form: str) -> None:
    write(mm2mgr.tree, x=SECRETS + FLOW)
    before = mm2mgr.files()
    for more in ((), ("--out", "out")):
        said = mm2mgr("render", "--format", form, *more, code=1)
        assert "pa55" not in said.out + said.err
        assert "trusted-word" not in said.out + said.err
        assert said.out == ""
        assert "mm2.a.b.source.f: source.cluster.sasl.jaas.config: a secret stands there in clear" in said.err
    assert mm2mgr.files() == before


def test_render_for_another_tool(mm2mgr: Command) -> None:
    write(mm2mgr.tree, x=BASE + FLOW)
    bodies = mm2mgr("render", "--format", "json").json
    assert [body["name"] for body in bodies] == ["mm2.a.b.heartbeat", "mm2.a.b.source.f", "mm2.a.b.checkpoint"]
    assert mm2mgr("render", "--format", "strimzi", "--api", "v1").out.count("apiVersion: kafka.strimzi.io/v1\n") == 3
    said = mm2mgr("render", "--format", "json", "--out", "out")
    assert (said.out, said.err) == ("", "3 files written to out\n")
    assert mm2mgr("lint", "out/w.mm2.a.b.source.f.json", "-o", "json").json
    assert "is not an empty folder" in mm2mgr("render", "--format", "json", "--out", "out", code=1).err
    mm2mgr("render", "--out", "other", code=64)
    mm2mgr("render", "--format", "json", "-o", "json", code=64)
