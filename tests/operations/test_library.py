"""The library as its page shows it: names, lazy imports, results, callbacks; and that it never prints, asks or exits."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from mm2mgr import operations
from mm2mgr.apply.waves import Event
from mm2mgr.errors import ExitCode, InvalidArgument, Mm2mgrError, SpecError, StalePlan
from mm2mgr.json_values import to_json
from mm2mgr.kafka.client import Kafka
from mm2mgr.observe.losses import LossEntry
from mm2mgr.operations import Applied, Result, WaveBegun, WaveVerified, Workspace
from mm2mgr.partitions import TopicPartition
from tests.plan.site import FLOWS, ON_EAST, ON_WEST, Site

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "reference" / "library.md").read_text()
PACKAGE = REPOSITORY / "mm2mgr" / "operations"
EVERYTHING = sorted(operations._HOMES)


def test_type_checkers_and_python_find_the_same_names() -> None:
    imports = [
        node for node in ast.walk(ast.parse(Path(operations.__file__).read_text())) if isinstance(node, ast.ImportFrom)
    ]
    typed = {
        name.name: str(node.module) for node in imports for name in node.names if str(node.module).startswith("mm2mgr.")
    }
    assert typed == operations._HOMES


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_name_is_on_the_page(name: str) -> None:
    assert not inspect.ismodule(getattr(operations, name))
    assert re.search(rf"`{name}\b", PAGE), "docs/reference/library.md has each name"


def test_modules_do_not_hide_the_functions_of_their_name() -> None:
    modules = ", ".join(sorted(set(operations._HOMES.values())))
    code = f"import {modules}, mm2mgr.operations as o; print(*(type(getattr(o, n)).__name__ for n in o._HOMES))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert "module" not in done.stdout.split()


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert set(EVERYTHING) <= set(dir(operations))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        operations.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_library_loads_nothing_that_takes_time() -> None:
    code = "import sys, json, mm2mgr.operations; print(json.dumps(sorted(m for m in sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    loaded = set(json.loads(done.stdout))
    assert not loaded & {
        "httpx",
        "pydantic",
        "jinja2",
        "pyarrow",
        "pyspark",
        "confluent_kafka",
        "rich",
        "click",
        "asyncio",
    }


def test_operations_neither_print_nor_exit() -> None:
    """Printing, asking and exit codes are the command line's; the layer test keeps its modules out of here."""
    for file in PACKAGE.glob("*.py"):
        tree = ast.parse(file.read_text())
        calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        assert not calls & {"print", "input", "exit", "sys.exit", "os._exit"}, file.name


def example(word: str = "") -> str:
    """Return the first example of the page that has a word."""
    blocks: list[str] = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return next(block for block in blocks if word in block)


def test_no_function_has_two_rows() -> None:
    rows = re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE)
    assert [name for name in rows if rows.count(name) > 1] == []


def test_the_example_restarts_what_a_restart_can_cure(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = Kafka.__init__
    monkeypatch.setattr(Kafka, "__init__", lambda kafka, access, timeout_seconds=0.2: begin(kafka, access, 0.2))
    operations.apply(Workspace(), wait_seconds=0)
    failures = {"orders": "TimeoutException: no answer", "logs": "RecordTooLargeException: 2 MB"}
    for name, words in failures.items():
        connector = site.east.connectors[f"mm2.a.east.source.{name}"]
        connector.failed_tasks[0] = f"org.apache.kafka.common.errors.{words}\n\tat x.Y.z(Y.java:1)\n"
    site.forget()
    code = example("def may_restart")
    assert len(code.splitlines()) <= 22
    exec(compile(code, "library.md", "exec"), {})
    out, err = capsys.readouterr()
    assert "orders:a->east: task 0 FAILED" in out
    assert "logs:a->east: task 0 FAILED" in out
    assert out.splitlines()[-2:] == ["mm2.a.east.source.orders write ok", "done"]
    assert [request.path for request in site.east.writes] == ["/connectors/mm2.a.east.source.orders/restart"]
    assert site.east.connectors["mm2.a.east.source.logs"].failed_tasks
    assert err == ""


def test_whatever_is_wrong_has_a_sentence(site: Site, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refused:
        site.declare("flows:\n  f: {sources: [nobody], targets: [east], topics: {include: [x]}}\n")
    assert [problem.sentence for problem in refused.value.problems] == refused.value.message.splitlines()
    site.declare(FLOWS)
    file = tmp_path / "c.properties"
    file.write_text("name=c\nconnector.class=org.apache.kafka.connect.mirror.MirrorSourceConnector\nbatch.size=1\n")
    for finding in operations.lint(Workspace(), [file]).findings:
        assert finding.sentence.startswith(finding.message)
        assert finding.sentence.endswith(finding.fix)
    partition = TopicPartition("orders", 0)
    lost = LossEntry("abc", "orders:a->b", "a", partition, "t", "retention", "log-start", 11, 17, 7, 5, None, 0.0)
    assert lost.sentence == (
        "orders:a->b: up to 7 records of 'orders-0' on 'a', offsets 11 to 17, may never arrive (retention);"
        " mm2mgr losses --ack abc acknowledges it"
    )


def test_levels_of_lag_are_an_enumeration_whose_words_do_too() -> None:
    assert [*operations.LagLevel] == ["partition", "topic", "task", "flow"]
    assert operations.LagOptions("task").by is operations.LagLevel.TASK  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="no level 'worker'; known: partition, topic, task, flow"):
        operations.LagOptions("worker")  # type: ignore[arg-type]


def test_the_example_of_the_page_runs(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(example(), "library.md", "exec"), {})
    out, err = capsys.readouterr()
    assert out.splitlines() == ["{'create': 7, 'update': 0, 'delete': 0, 'no-op': 0, 'blocked': 0}", "done"]
    assert err == ""
    assert site.names("east") == sorted(ON_EAST)
    assert site.names("west") == sorted(ON_WEST)


def test_the_example_of_the_docstring_is_that_of_the_page() -> None:
    lines = [line.strip() for line in example().splitlines()]
    assert all(line in str(operations.__doc__) for line in lines if line.startswith(("workspace", "made", "apply")))


def test_it_works_where_an_event_loop_runs_as_in_a_notebook(site: Site) -> None:
    async def cell() -> Applied:
        return operations.apply(Workspace(), wait_seconds=0)

    applied = asyncio.run(cell())
    assert applied.outcome == "done"
    assert len(applied.done_results) == len(ON_EAST) + len(ON_WEST)


def test_events_are_values(site: Site) -> None:
    events: list[Event] = []
    applied = operations.apply(Workspace(), wait_seconds=5, report=events.append)
    waves = [event for event in events if isinstance(event, WaveBegun)]
    assert [(wave.connect, wave.number, wave.of) for wave in waves if wave.connect == "west"] == [
        *(("west", number, 3) for number in (1, 2, 3))
    ]
    assert [event.verdict for event in events if isinstance(event, WaveVerified)] == ["ok"] * len(waves)
    assert {event.connector for event in events if isinstance(event, Result)} == {*ON_EAST, *ON_WEST}
    assert {settled.verdict for settled in applied.states.values()} == {"ok"}


def test_a_plan_that_is_not_approved_writes_nothing(site: Site) -> None:
    with pytest.raises(Mm2mgrError, match="not approved"):
        operations.apply(Workspace(), approve=lambda plan: plan.counts()["create"] == 0)
    assert site.names("east") == site.names("west") == []


def test_a_reviewed_plan_is_applied_until_the_tree_changes(site: Site) -> None:
    file = Path("plan.json")
    made = operations.plan(Workspace(), operations.PlanOptions(("logs",)), out=file)
    written = json.loads(file.read_text())["plan"]
    for part in written["clusters"]:
        assert all(change.pop("saw") for change in part["changes"])
    assert written == to_json(made)
    assert operations.apply(Workspace(), file, wait_seconds=0).outcome == "done"
    assert len(site.names("east")) == 3
    assert operations.apply(Workspace(), file, wait_seconds=0).results == ()
    site.declare(FLOWS.replace("orders", "sales").replace("logs[.]", "log[.]"))
    with pytest.raises(StalePlan):
        operations.apply(Workspace(), file)


def test_what_an_interrupt_leaves_is_in_the_result(site: Site) -> None:
    @contextmanager
    def at_once(so_far: Callable[[], Applied]) -> Iterator[asyncio.Event]:
        halt = asyncio.Event()
        halt.set()
        assert so_far().results == ()
        yield halt

    applied = operations.apply(Workspace(), interrupts=at_once)
    assert (applied.interrupted, applied.outcome) == (True, "failed")
    assert [change.connector for change in applied.left_changes] == [change.connector for change in applied.plan.writes]
    assert site.names("east") == []


def test_two_workspaces_do_not_know_of_each_other(site: Site, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(Mm2mgrError):
        operations.plan(Workspace((tmp_path / "other",)))
    assert operations.plan(Workspace()).counts()["create"] == 7


def test_wrong_arguments_name_themselves(site: Site) -> None:
    for call, argument in (
        (lambda: operations.lint(Workspace(), options=operations.LintOptions(ignore=["nope"])), "ignore"),
        (lambda: operations.lint(Workspace(), options=operations.LintOptions(kafka="abc")), "kafka"),
        (
            lambda: operations.lint(Workspace(), options=operations.LintOptions(bytes_per_second=1.0)),
            "bytes_per_second",
        ),
        (lambda: operations.explain(Workspace(), "batch.size", on="sink"), "on"),
    ):
        with pytest.raises(InvalidArgument) as refused:
            call()
        assert (refused.value.argument, refused.value.exit_code) == (argument, ExitCode.USAGE)


def test_a_version_between_the_known_lines_is_reported_and_judged_by_one_of_them(site: Site) -> None:
    events: list[operations.OtherLine] = []
    operations.explain(Workspace(), "batch.size", operations.LintOptions("9.9", report=events.append))
    (event,) = events
    assert (event.version, event.judged_by) == ("9.9", event.lines[-1])


def test_watch_yields_a_value_per_look_and_remembers_between(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = Kafka.__init__
    monkeypatch.setattr(Kafka, "__init__", lambda kafka, access, timeout_seconds=0.2: begin(kafka, access, 0.2))
    first, second = islice(operations.watch_status(Workspace(), ["orders"], every_seconds=0.01), 2)
    assert first.taken_at < second.taken_at
    assert [flow.flow for flow in second.flows] == ["orders:a->east"]
    assert second.flows[0].state == "not applied"
    assert to_json(operations.describe(Workspace(), "orders"))["status"]["health"] == second.health
    assert operations.acknowledge(Workspace(), ["all"]) == ()
    assert capsys.readouterr() == ("", "")


def test_it_is_typed_for_its_users() -> None:
    assert (REPOSITORY / "mm2mgr" / "py.typed").exists()


def test_lint_returns_findings_and_what_was_not_read(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "c.properties"
    file.write_text("name=c\nconnector.class=org.apache.kafka.connect.mirror.MirrorSourceConnector\nbatch.size=1\n")
    report = operations.lint(
        Workspace(), [file], operations.LintOptions(connects=["http://127.0.0.1:1"], timeout_seconds=1)
    )
    assert "dead-key" in {finding.rule for finding in report.loud}
    assert ["127.0.0.1:1" in error.message for error in report.unread] == [True]
    assert report.fails("never"), "what could not be read is a failure whatever the findings are"
    assert to_json(report)["summary"]["looked_at"] == [str(file)]


def test_secrets_are_masked_in_what_may_be_shown(site: Site) -> None:
    off = "{sources: [a], targets: [east], topics: {include: [x]}, source_consumer: {sasl.jaas.config: s3cret-jaas}}"
    site.declare(f"flows:\n  f: {off}\n")
    shown = json.dumps([operations.render(Workspace()).to_dict(origins=True), to_json(operations.plan(Workspace()))])
    assert "sasl.jaas.config" in shown
    assert "s3cret-jaas" not in shown
