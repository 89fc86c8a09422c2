"""`link explain`; `link read` and `link probe` where brokers do not answer, differ, or are mocks. Real brokers: tests/kafka/test_live.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mm2mgr.check.needs import smallest
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.bandwidth import Transfer
from mm2mgr.kafka.wire import RoundTrip
from mm2mgr.link import BrokerLimits
from mm2mgr.operations.link import ProbedEnd, declare_link, judge_probe, with_bandwidth
from mm2mgr.operations.workspace import Workspace

from .command import Command

TREE = """\
owner: team
clusters:
  a: {{bootstrap_servers: ["127.0.0.1:{port}"]}}
  b: {{bootstrap_servers: ["localhost:{port}"]}}
connect:
  w: {{url: "http://localhost:8083", kafka: b}}
flows:
  f: {{sources: [a], targets: [b], topics: {{include: [t]}}}}
"""
READ = """\
# Written by `mm2mgr link read` from the brokers: review it like any change, then commit.
brokers:
  a: {count: 3, version: '3.9', socket.send.buffer.bytes: -1, since: '2026-01-02'}
  gone: {count: 1}
"""
KAFKA = {
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "message.max.bytes": "1048588",
}


def declare(folder: Path, port: int, brokers: str = READ) -> Path:
    file = folder / "overrides" / "brokers.yaml"
    file.parent.mkdir(parents=True)
    (folder / "tree.yaml").write_text(TREE.format(port=port))
    file.write_text(brokers)
    return file


def test_clusters_that_do_not_answer_keep_their_entries(mm2mgr: Command, closed_port: int) -> None:
    file = declare(mm2mgr.tree, closed_port)
    said = mm2mgr("link", "read", "--timeout", "5", code=1)
    assert said.err.count("its entry stays as it is") == 2
    assert "a: no broker of 127.0.0.1" in said.err
    assert file.read_text() == READ
    found = mm2mgr("link", "read", "a", "--timeout", "5", "-o", "json", code=1).json
    assert found["clusters"] == {}
    assert list(found["failures"]) == ["a"]


def test_a_cluster_that_is_not_declared_is_an_error_and_one_that_no_longer_is_is_said(
    mm2mgr: Command, closed_port: int
) -> None:
    declare(mm2mgr.tree, closed_port)
    said = mm2mgr("link", "read", "aa", code=1)
    assert "no cluster 'aa' in the tree" in said.err
    assert "did you mean 'a'?" in said.err
    said = mm2mgr("plan", code=1)
    assert "cluster 'gone' is no longer declared" in said.err


@pytest.mark.parametrize(("tasks", "said"), [(1, True), (60, False)])
def test_a_plan_names_the_buffer_of_brokers_that_tasks_do_not_make_up_for(
    mm2mgr: Command, closed_port: int, tasks: int, said: bool
) -> None:
    declare(mm2mgr.tree, closed_port, "brokers: {a: {count: 1, socket.send.buffer.bytes: 102400}}\n")
    tree = mm2mgr.tree / "tree.yaml"
    text = tree.read_text().replace("include: [t]}", f"include: [t]}}, tasks: {{max: {tasks}}}")
    tree.write_text(text + "links: [{between: [a, b], rtt: 100ms, bandwidth: 200Mbit/s}]\n")
    found = mm2mgr("plan", code=1).err
    advice = "link: f:a->b: set socket.send.buffer.bytes=-1 on the brokers of a, with a rolling restart: "
    assert (advice in found) == said
    assert ("without it use" in found) == said


def test_a_file_of_people_is_not_overwritten(mm2mgr: Command, closed_port: int) -> None:
    declare(mm2mgr.tree, closed_port, "brokers: {a: {count: 0}}\n")
    said = mm2mgr("link", "read", code=1)
    assert "overrides/brokers.yaml:1:15: " in said.err


def test_the_smallest_value_counts_and_the_system_is_the_largest() -> None:
    other = {**KAFKA, "socket.send.buffer.bytes": "-1", "message.max.bytes": "2000000"}
    entry, remarks = smallest("a", {1: KAFKA, 2: {**other, "inter.broker.protocol.version": "3.9-IV0"}})
    assert entry == {"count": 2, "version": "3.9", **{key: int(value) for key, value in KAFKA.items()}}
    assert remarks == [
        "a: brokers differ in socket.send.buffer.bytes (102400 on broker 1, -1 on broker 2); the smallest counts",
        "a: brokers differ in message.max.bytes (1048588 on broker 1, 2000000 on broker 2); the smallest counts",
    ]
    same, remarks = smallest("a", {1: other, 2: other})
    assert (same["socket.send.buffer.bytes"], same["version"], remarks) == (-1, "4.0", [])


@pytest.mark.parametrize("arguments", [("link", "read", "--timeout", "0"), ("link", "read", "--timeout", "nan")])
def test_bad_values_are_wrong_usage(mm2mgr: Command, arguments: tuple[str, ...]) -> None:
    mm2mgr(*arguments, code=64)


# --- probe ------------------------------------------------------------------------------------------------------------


def end(cluster: str, *seconds: float) -> ProbedEnd:
    return ProbedEnd(cluster, tuple(RoundTrip(f"{cluster}{number}:1", each) for number, each in enumerate(seconds)))


def test_a_probe_measures_both_ends_and_prints_the_entry(mm2mgr: Command, mock_cluster: KafkaAccess) -> None:
    one, other = (address.rpartition(":")[2] for address in mock_cluster.bootstrap_servers.split(","))
    mm2mgr.tree.mkdir()
    text = TREE.format(port=one).replace(f"localhost:{one}", f"localhost:{other}")
    (mm2mgr.tree / "tree.yaml").write_text(text)
    said = mm2mgr("link", "probe", "a", "b")
    assert "this machine -> a" in said.lines[0]
    assert "(2 brokers, " in said.lines[0]
    assert "this machine is beside" in said.out
    assert "links:" in said.lines
    assert (mm2mgr.tree / "tree.yaml").read_text() == text
    mm2mgr("link", "probe", "b", "a", "--write")
    written = (mm2mgr.tree / "tree.yaml").read_text()
    assert written.startswith(text)
    (link,) = Workspace((mm2mgr.tree,)).spec.tree.links
    assert (link.between, link.bandwidth) == (["b", "a"], None)
    found = mm2mgr("link", "probe", "a", "b", "-o", "json").json
    assert [len(each["brokers"]) for each in found["ends"]] == [2, 2]
    keys = ["broker", "connect_seconds", "request_seconds", "why", "seconds"]
    assert [list(broker) for each in found["ends"] for broker in each["brokers"]] == [keys] * 4
    assert [list(each) for each in found["ends"]] == [["cluster", "seconds", "brokers"]] * 2
    assert found["entry"]["between"] == ["a", "b"]


def test_a_probe_of_clusters_that_do_not_answer_or_are_not_two(mm2mgr: Command, closed_port: int) -> None:
    declare(mm2mgr.tree, closed_port)
    said = mm2mgr("link", "probe", "a", "b", "--timeout", "5", code=1)
    assert "a: no broker of 127.0.0.1" in said.err
    assert "a link from 'a' to itself" in mm2mgr("link", "probe", "a", "a", code=1).err
    assert "no cluster 'x'" in mm2mgr("link", "probe", "a", "x", code=1).err


@pytest.mark.parametrize(
    "options",
    [["--bandwidth"], ["--topic", "t"], ["--temporary-topic"], ["--bandwidth", "--topic", "t", "--temporary-topic"]],
)
def test_a_bandwidth_is_measured_only_when_asked_for_and_with_one_topic(mm2mgr: Command, options: list[str]) -> None:
    assert "--bandwidth needs one of" in mm2mgr("link", "probe", "a", "b", *options, code=64).err


def test_the_link_is_the_far_round_trip_where_this_machine_is_beside_the_other_end() -> None:
    found = judge_probe(end("dc1", 0.0179, 0.0183, 0.0186), end("agg", 0.0003))
    assert found.verdict == "the link is about 18 ms: this machine is beside agg"
    assert found.entry == {"between": ["dc1", "agg"], "rtt": "18ms"}
    assert found.far.cluster == "dc1"


def test_beside_neither_end_the_link_is_not_known() -> None:
    found = judge_probe(end("dc1", 0.080), end("agg", 0.050))
    assert found.entry is None
    assert found.verdict.startswith("the link is between 30 ms and 130 ms: this machine is beside neither end")


def test_a_short_link_is_called_short() -> None:
    found = judge_probe(end("dc1", 0.0004), end("agg", 0.0003))
    assert found.verdict.endswith("so short a link needs no entry")
    assert found.entry == {"between": ["dc1", "agg"], "rtt": "0.4ms"}


def test_a_bandwidth_that_the_brokers_buffers_decide_is_not_written() -> None:
    probe = judge_probe(end("dc1", 0.1), end("agg", 0.0003))
    moved = Transfer(200_000_000, 10.0, 24.1e6, 8)
    assert (with_bandwidth(probe, moved, BrokerLimits(-1, -1), reading=True).entry or {})["bandwidth"] == "200Mbit/s"
    limited = with_bandwidth(probe, moved, BrokerLimits(), reading=True)
    assert "bandwidth" not in (limited.entry or {})
    assert "socket.send.buffer.bytes of dc1 lets through" in limited.remarks[-1]
    assert "socket.receive.buffer.bytes" in with_bandwidth(probe, moved, BrokerLimits(), reading=False).remarks[-1]
    again = with_bandwidth(probe, Transfer(200_000_000, 10.0, 24.1e6, 8, rewinds=80), BrokerLimits(-1), reading=True)
    assert again.remarks == ("the topic is small and was read 10 times; a larger one loads the link better",)


LINKS = {
    "block": ("links:  # far\n  - between: [x, a]\n    rtt: 1ms  # near\n", "  - {between: [a, b], rtt: '18ms'}\n"),
    "flow": ("links: [{between: [x, a], rtt: 1ms}]\n", ", {between: [a, b], rtt: '18ms'}]\n"),
    "there": ("links:\n  - {between: [b, a], rtt: 90ms}  # measured by hand\n", "rtt: '18ms'}  # measured by hand\n"),
    "none": ("", "links: [{between: [a, b], rtt: '18ms'}]\n"),
}


@pytest.mark.parametrize("form", LINKS)
def test_the_entry_is_put_into_the_tree_and_all_other_lines_stay(tmp_path: Path, form: str) -> None:
    before, after = LINKS[form]
    file = tmp_path / "tree.yaml"
    text = before + TREE.format(port=1).replace("clusters:\n", "clusters:\n  x: {bootstrap_servers: [x:1]}\n")
    file.write_text(text)
    changed = declare_link(Workspace((tmp_path,)), {"between": ["a", "b"], "rtt": "18ms"})
    changed.write()
    lines = file.read_text().splitlines(keepends=True)
    assert [line for line in lines if line.endswith(after)]
    assert len(set(text.splitlines(keepends=True)) - set(lines)) == (1 if form in ("flow", "there") else 0)
    assert pytest.approx(0.018) in [link.rtt for link in Workspace((tmp_path,)).spec.tree.links]
    assert not declare_link(Workspace((tmp_path,)), {"between": ["a", "b"], "rtt": "18ms"}).new


def test_a_tree_that_cannot_be_edited_says_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "tree.yaml").write_text("links:\n" + TREE.format(port=1))
    with pytest.raises(Mm2mgrError) as caught:
        declare_link(Workspace((tmp_path,)), {"between": ["a", "b"], "rtt": "18ms"})
    assert caught.value.hint == "write it by hand: links: [{between: [a, b], rtt: 18ms}]"


LINKED = """\
owner: team
clusters:
  a: {bootstrap_servers: ["a1:9092"]}
  b: {bootstrap_servers: ["b1:9092"]}
  c: {bootstrap_servers: ["c1:9092"]}
connect:
  w: {url: "http://localhost:8083", kafka: b}
  beside-a: {url: "http://localhost:8084", kafka: a}
links:
  - {between: [a, b], rtt: 100ms, bandwidth: 200Mbit/s}
flows:
  orders: {sources: [a], targets: [b], topics: {include: [t]}, run_on: w, tasks: {max: 4}}
  clicks: {sources: [c], targets: [b], topics: {include: [u]}, run_on: w}
"""


def test_explain_compares_settings_and_placements(mm2mgr: Command) -> None:
    mm2mgr.tree.mkdir(exist_ok=True)
    (mm2mgr.tree / "tree.yaml").write_text(LINKED)
    (found,) = mm2mgr("link", "explain", "orders", "--partitions", "12", "-o", "json").json["flows"]
    rows = {(row["placement"], row["settings"]): row for row in found["rows"]}
    assert len(rows) == 6
    assert [key for key, row in rows.items() if row["is_current"]] == [("target", "this tree")]
    kafkas, ours = (rows["target", settings]["forecast"] for settings in ("Kafka's defaults", "this tree"))
    assert kafkas["limit"] == "client window"
    assert ours["limit"] == "broker window"
    assert ours["flow"] > 2 * kafkas["flow"]
    assert "batches are refused and split" in rows["source", "published recipe"]["forecast"]["stall"]
    trips, tasks, sizes = found["curves"]
    assert [point["value"] for point in trips["points"] if point["marks"]] == [0.1]
    rates = [point["rates"]["this tree"] for point in trips["points"]]
    assert rates == sorted(rates, reverse=True), "a longer round trip carries no more"
    assert [point["value"] for point in tasks["points"]] == [1, 2, 4, 8, 12]
    assert {mark: point["value"] for point in sizes["points"] for mark in point["marks"]} == {
        "Kafka's defaults": 1 << 20,
        "published recipe": 50 << 20,
        "this tree": 5 << 20,  # bounded by the heap that the tasks of both flows share
    }


def test_explain_draws_beside_the_source_over_the_batch(mm2mgr: Command) -> None:
    mm2mgr.tree.mkdir(exist_ok=True)
    (mm2mgr.tree / "tree.yaml").write_text(LINKED.replace("run_on: w, tasks", "run_on: beside-a, tasks"))
    said = mm2mgr("link", "explain", "a->b", "--page", "link.html")
    assert "beside the source   this tree (now)" in said.out
    assert "batch.size" in said.out
    page = Path("link.html").read_text()
    assert page.count("<polyline") == 18, "three figures of three lines, each with its sample in the legend"
    for figure in re.findall(r"<svg.*?</svg>", page):
        lines = re.findall(r'<polyline class="curve" points="[^"]*"([^>]*)><title>', figure)
        assert len(set(lines)) == len(lines) == 3, "each line has a dash of its own"
        assert figure.count("this tree</text>") >= 1
    assert "Rate over batch.size" in page


def test_a_page_has_no_figure_without_a_line(mm2mgr: Command) -> None:
    mm2mgr.tree.mkdir(exist_ok=True)
    (mm2mgr.tree / "tree.yaml").write_text(LINKED.replace("tasks: {max: 4}", "tasks: {max: 1}"))
    mm2mgr("link", "explain", "orders", "--partitions", "1", "--page", "link.html")
    page = Path("link.html").read_text()
    assert page.count("<svg") == 2, "round trip and fetch; one partition has one number of tasks"
    assert "Nothing to draw: there is one value" in page


def test_explain_of_a_flow_without_link_says_what_to_declare(mm2mgr: Command) -> None:
    mm2mgr.tree.mkdir(exist_ok=True)
    (mm2mgr.tree / "tree.yaml").write_text(LINKED)
    said = mm2mgr("link", "explain", "clicks", code=1)
    assert "no link is declared for c->b" in said.err
    assert "links: - {between: [c, b], rtt: 80ms}" in said.err
