"""A YAML tree becomes subjects whose keys know the lines people wrote, with what the tree declares of workers and links."""

from __future__ import annotations

import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.errors import Problem, SpecError
from mm2mgr.expand import expand
from mm2mgr.lint.rules import lint
from mm2mgr.lint.subject import Estate, Subject
from mm2mgr.lint.tree import from_tree, invalid
from mm2mgr.render import render
from mm2mgr.spec.files import load

REPOSITORY = Path(__file__).parents[2]
GOLDEN = sorted((REPOSITORY / "tests" / "render" / "golden").glob("*/in.yaml"))

TREE = """\
    owner: team
    clusters:
      a: {bootstrap_servers: ["a:9092"], cluster_id: AAAA}
      b: {bootstrap_servers: ["b:9092"], cluster_id: BBBB}
    connect:
      w: {url: "http://w:8083", kafka: b, version: "3.9.2"}
    links:
      - {between: [a, b], rtt: 80ms, bandwidth: 100MB/s}
    flows:
      # mm2mgr: silence sync-configs-off the owners of b set retention themselves
      orders:
        sources: [a]
        targets: [b]
        topics: {include: [orders]}
        source_consumer: {receive.buffer.bytes: 1048576}
        silence: {pattern-dot: one topic only}
"""


def estate(folder: Path, text: str = TREE, *, with_spec: bool = True) -> Estate:
    (folder / "tree.yaml").write_text(textwrap.dedent(text))
    spec = load([folder])
    topology = expand(spec)
    return from_tree(topology, render(topology), spec if with_spec else None)


def of(found: Estate, type_: str) -> Subject:
    return next(subject for subject in found.subjects if subject.type == type_)


def test_facts_of_the_tree(tmp_path: Path) -> None:
    found = estate(tmp_path)
    source, heartbeat = of(found, "source"), of(found, "heartbeat")
    assert found.complete
    assert (source.form, source.connector.flows, source.pair) == ("tree", ("orders:a->b",), "a->b")
    assert (source.worker.version, source.worker.cluster_id, source.worker.exactly_once) == ("3.9.2", "BBBB", None)
    assert (source.source_kafka.cluster_id, source.target_kafka.cluster_id) == ("AAAA", "BBBB")
    # The beats of a flow are written to its source, so there the target is `a`.
    assert (heartbeat.source_kafka.cluster_id, heartbeat.target_kafka.cluster_id) == ("BBBB", "AAAA")
    assert source.wire is not None
    assert (source.wire.rtt_seconds, source.wire.bytes_per_second) == (0.08, 100e6)


def test_exactly_once_workers(tmp_path: Path) -> None:
    once = estate(tmp_path, TREE + "        delivery: exactly_once\n")
    assert of(once, "checkpoint").worker.exactly_once is True
    never = estate(tmp_path, TREE.replace("kafka: b,", "kafka: b, exactly_once: false,"))
    assert of(never, "source").worker.exactly_once is False


def test_keys_stand_where_people_wrote_them(tmp_path: Path) -> None:
    source = of(estate(tmp_path), "source")
    file = str(tmp_path / "tree.yaml")

    def line(key: str) -> int:
        spot = source.spot_of(key)
        assert spot.file == file
        return spot.line

    assert (line("topics"), line("source.consumer.receive.buffer.bytes")) == (14, 15)
    assert line("source.cluster.bootstrap.servers") == 3
    # mm2mgr's own words, and keys that nobody wrote: the flow.
    assert (line("errors.tolerance"), line("source.consumer.max.poll.records"), line("x.y")) == (11, 11, 11)


def test_without_the_spec_the_sources_stand_for_the_flow(tmp_path: Path) -> None:
    found = estate(tmp_path, with_spec=False)
    assert (of(found, "source").spot.line, found.files) == (12, ())


def test_overrides_have_their_place(tmp_path: Path) -> None:
    (tmp_path / "overrides").mkdir()
    (tmp_path / "overrides" / "sizing.yaml").write_text("sizing:\n  'orders:a->b': {tasks_max: 3}\n")
    spot = of(estate(tmp_path), "source").spot_of("tasks.max")
    assert (Path(spot.file).name, spot.line) == ("sizing.yaml", 2)


def test_silences_of_fields_and_comments(tmp_path: Path) -> None:
    found = estate(tmp_path)
    for type_ in ("source", "checkpoint", "heartbeat"):
        silences = of(found, type_).silences
        assert [(each.rule, each.reason, each.spot.line) for each in silences] == [
            ("pattern-dot", "one topic only", 16)
        ]
    (comment,) = found.files[0].silences
    assert (comment.rule, comment.reason, comment.spot.line) == (
        "sync-configs-off",
        "the owners of b set retention themselves",
        10,
    )


def test_an_unknown_rule_is_told_where_it_is_silenced(tmp_path: Path) -> None:
    findings = lint(estate(tmp_path, TREE.replace("pattern-dot", "patern-dot")))
    (found,) = [finding for finding in findings if finding.rule != "known-bug"]
    assert (found.rule, found.spot.line, found.fix, found.more) == ("silence-unexplained", 16, "write pattern-dot", 0)


@pytest.mark.parametrize("case", [REPOSITORY / "clusters", *GOLDEN], ids=lambda case: case.parent.name)
def test_our_own_trees_have_no_finding(case: Path) -> None:
    spec = load([case])
    topology = expand(spec)
    assert lint(from_tree(topology, render(topology), spec)) == []


def test_what_the_loader_refuses_becomes_findings(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        estate(tmp_path, TREE.replace("topics: {include", "topcs: {include").replace("kafka: b", "kafca: b"))
    found = {finding.spot.line: finding for finding in invalid(raised.value)}
    assert (found[14].rule, found[14].severity) == ("invalid-declaration", "error")
    assert (found[14].message, found[14].fix) == ("unknown key 'topcs'", "did you mean 'topics'?")
    assert all(finding.fix for finding in found.values())


def test_a_problem_without_a_line() -> None:
    (found,) = invalid(SpecError([Problem("a, b", "no YAML file with content")], hint="mm2mgr init writes a starter"))
    assert (str(found.spot), found.fix) == ("a, b", "mm2mgr init writes a starter")


def test_a_thousand_flows_are_turned_quickly(tmp_path: Path) -> None:
    aliases = [f"c{number}" for number in range(33)]
    clusters = "\n".join(f"      {each}: {{bootstrap_servers: ['{each}:9092']}}" for each in aliases)
    connects = "\n".join(f"      w{each}: {{url: 'http://w{each}:8083', kafka: {each}}}" for each in aliases)
    text = f"owner: t\nclusters:\n{clusters}\nconnect:\n{connects}\nflows:\n"
    for target in aliases:
        sources = [each for each in aliases if each != target]
        text += f"  to-{target}: {{sources: {sources}, targets: [{target}], topics: {{include: [t]}}}}\n"
    (tmp_path / "tree.yaml").write_text(text)
    spec = load([tmp_path])
    topology = expand(spec)
    connectors = render(topology)
    started = time.process_time()
    found = from_tree(topology, connectors, spec)
    assert time.process_time() - started < 2  # a tenth of it when alone; rendering takes ten times as long
    assert len(found.subjects) == len(connectors) > 3000


def test_a_template_that_sends_records_to_a_third_cluster(tmp_path: Path) -> None:
    third = TREE.replace(
        "    connect:\n", '      c: {bootstrap_servers: ["c:9092"], cluster_id: CCCC}\n    connect:\n', 1
    )
    assert third != TREE
    (tmp_path / "tree.yaml").write_text(textwrap.dedent(third))
    spec = load([tmp_path])
    topology = expand(spec)
    own = {"producer.override.bootstrap.servers": "c:9092"}
    connectors = [replace(each, config={**each.config, **own}) for each in render(topology) if each.type == "source"]
    (found,) = (each for each in lint(from_tree(topology, connectors, spec)) if each.rule == "wrong-kafka")
    assert "(CCCC, not BBBB)" in found.message
    assert "remove producer.override.bootstrap.servers from source.properties.j2" in found.fix
