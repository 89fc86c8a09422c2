"""The terminal obeys nobody: what others wrote is shown where it stands, at 40, 80 and 120 columns, and in pipes.

Every command prints names and values that carry orders for a terminal. On the screen stands just what a pipe gets, and at
the left edge only what mm2mgr itself begins a line with.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.output.console import say_json
from mm2mgr.output.page import escape
from mm2mgr.text import cells, visible
from tests.cli.command import REPOSITORY, Command
from tests.cli.load import addresses, declare, measured, produce
from tests.cli.test_watch import FLOW, SOURCE, Watched
from tests.fake_connect import FakeConnect, serving
from tests.plan.site import Site
from tests.spec.trees import write

from .screen import Seen, on_screen

WIDTHS = (40, 80, 120)
FAKE = "Applied: 9 of 9 changes"
# Erase the line and all above, go to its beginning, colour what follows, be a picture, be markup, begin a line, reorder, hide.
ORDERS = (
    "\x1b[2J\x1b[1A\x1b[2K\x1b[1G",
    "\x1b]0;title\x07\x9b2K\x1b[37;44m",
    "\r" + "\b" * 60 + "\x7f",
    "\n" + FAKE + "\n\x0b\x0c\x85\u2028\u2029",
    "\u202e\u2066\u200f\u061c\u200b\u2060\ufeff\u00ad\U000e0041\u3164\u034f",
    ":key: :thumbs_up: [red]x[/red] [bold]",
    "\u05d0\u05d1 1 -> 2",
)
HOSTILE = "".join(ORDERS)
LONG = f"{FAKE} " * 16  # wherever a row ends, one of these would begin the next
VALUE = HOSTILE + LONG


def command_shows(
    mm2mgr: Command, *arguments: str, at_least: str = "Applied:", widths: tuple[int, ...] = WIDTHS
) -> None:
    """Run a command in a pipe and at each width, and hold what is seen to what the pipe got."""
    mm2mgr.monkeypatch.setattr("sys.argv", ["mm2mgr", *arguments])
    code, out, err = run_in_pipe(mm2mgr)
    piped = out + err
    assert at_least in piped, piped
    assert all(visible(line) == line for line in piped.split("\n"))
    assert not [line for line in piped.split("\n") if line.startswith(FAKE)]
    for width in widths:
        seen = on_screen(mm2mgr, width, *arguments)
        assert seen.code == code
        held(seen, width)


def run_in_pipe(mm2mgr: Command) -> tuple[int, str, str]:
    from mm2mgr.cli import main

    mm2mgr.capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), *mm2mgr.capsys.readouterr()


def held(seen: Seen, width: int) -> None:
    rows = seen.out.rows + seen.err.rows
    assert not [row for row in rows if row.startswith("Applied: 9")], f"a row of its own at {width} columns"
    assert seen.out.orders == ""
    assert seen.out.backgrounds | seen.err.backgrounds == {"default"}
    assert seen.out.letters == re.sub(r"\s", "", seen.out.plain), f"not all that was written is seen at {width} columns"


# --- one scenario a command ---------------------------------------------------------------------------------------------


@pytest.fixture
def changed(site: Site, mm2mgr: Command) -> Command:
    """What runs on east differs by hostile keys and values, and an owned connector with a hostile name is left over."""
    mm2mgr("apply", "--yes")
    source = site.east.connectors["mm2.a.east.source.logs"]
    site.east.add(f"mm2.a.east.source.{HOSTILE}", {**source.config, "name": f"mm2.a.east.source.{HOSTILE}"})
    source.config[f"consumer.{HOSTILE}"] = VALUE
    return mm2mgr


def test_plan(changed: Command) -> None:
    command_shows(changed, "plan", "--full", "--prune")


def test_apply_and_errors_of_workers(changed: Command, site: Site) -> None:
    del site.east.connectors[f"mm2.a.east.source.{HOSTILE}"]
    site.east.fail_next("PUT", "/connectors/", 400, VALUE, times=1000)
    command_shows(changed, "apply", "--yes", "--wait", "0", "--flow", "logs:a->east", at_least="failed")


def test_a_connect_cluster_that_answers_with_orders(site: Site, mm2mgr: Command) -> None:
    site.east.fail_next("GET", "/connectors", 500, VALUE, times=1000)
    command_shows(mm2mgr, "plan", at_least="not planned")


@pytest.mark.usefixtures("impatient")
def test_status_and_describe(watched: Watched) -> None:
    connector = watched.connect.connectors[SOURCE]
    connector.failed_tasks = {0: f"org.apache.kafka.common.KafkaException: {VALUE}\n\tat {HOSTILE}\nCaused by: {VALUE}"}
    watched.connect.add(f"mm2.{HOSTILE}", {**connector.config, "name": f"mm2.{HOSTILE}"})
    command_shows(watched.mm2mgr, "status", at_least="Exception")
    command_shows(watched.mm2mgr, "describe", FLOW, at_least="Caused by")


def test_lint_of_a_file(mm2mgr: Command) -> None:
    name = "a\x1b[2K\u202e\n.json"
    config = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        f"batch.{HOSTILE}.size": VALUE,
    }
    (mm2mgr.folder / name).write_text(json.dumps({"name": HOSTILE, "config": {**config, "tasks.max": VALUE}}))
    command_shows(mm2mgr, "lint", name, "--fail-on", "never", at_least="\\x1b[2K")


def test_render_and_explain_of_a_tree(site: Site, mm2mgr: Command) -> None:
    settings = f"source_consumer: {{client.rack: {quoted(VALUE)}}}"
    site.declare(f'flows:\n  logs: {{sources: [a], targets: [east], topics: {{include: ["logs[.].*"]}}, {settings}}}\n')
    (mm2mgr.tree / "x.yaml").rename(mm2mgr.tree / "x\x1b[2K\u202e.yaml")
    command_shows(mm2mgr, "render", "--origins")
    command_shows(mm2mgr, "explain", "logs:a->east")


def quoted(text: str) -> str:
    """Return any text as YAML."""
    return '"' + "".join(f"\\U{ord(each):08x}" for each in text) + '"'


def test_a_tree_and_a_template_that_are_wrong(site: Site, mm2mgr: Command) -> None:
    assert site
    (mm2mgr.folder / "templates").mkdir()
    (mm2mgr.folder / "templates" / "source.properties.j2").write_text(
        f"{{{{ {json.dumps(HOSTILE)}.nope.nope }}}}\n{FAKE}"
    )
    command_shows(mm2mgr, "render", at_least="error:")
    write(mm2mgr.tree, x=f"flows: {{{json.dumps(HOSTILE.replace(chr(0x7F), ''))}: 1, {json.dumps(FAKE)}: 2}}\n")
    command_shows(mm2mgr, "plan", at_least="error:")


def test_usage_and_names_that_are_not_there(site: Site, mm2mgr: Command) -> None:
    assert site
    for arguments in (["plan", VALUE], ["plan", f"--{VALUE}"], [VALUE], ["size", "--by", VALUE]):
        command_shows(mm2mgr, *arguments, at_least="rror: ", widths=(40, 80))


@pytest.mark.usefixtures("impatient")
def test_check(mm2mgr: Command, mock_cluster: KafkaAccess) -> None:
    connect = FakeConnect(policy="None", cluster_id=f"{HOSTILE}{FAKE}")
    connect.reported_version = HOSTILE
    a, b = addresses(mock_cluster)
    with serving(connect) as url:
        site = f"clusters:\n  a: {{bootstrap_servers: ['{a}']}}\n  b: {{bootstrap_servers: ['{b}']}}\n"
        flows = "flows:\n  logs: {sources: [a], targets: [b], topics: {include: [logs]}}\n"
        write(mm2mgr.tree, x=f"owner: team\n{site}connect:\n  w: {{url: '{url}', kafka: b}}\n{flows}")
        command_shows(mm2mgr, "check", "--timeout", "1", at_least="Checked", widths=(40, 120))


@pytest.mark.usefixtures("impatient")
def test_load_and_sizes(mm2mgr: Command, mock_cluster: KafkaAccess) -> None:
    declare(mm2mgr.tree, *addresses(mock_cluster))
    produce(mock_cluster, "logs.web")
    topics = [f"logs.{order}" for order in (*ORDERS, LONG)]
    measured(mm2mgr.folder / "store", {("a", topic, 0): 20e6 for topic in topics} | {("a", "logs.web", 0): 9e6})
    for by in ("partition", "topic"):
        command_shows(mm2mgr, "throughput", "--show", "--store", "store", "--by", by)
    for command in (["size", "--dry-run"], ["fleet"], ["simulate", "--traffic", "2"]):
        command_shows(mm2mgr, *command, "--store", "store", at_least="logs", widths=(40,))


# --- the rules themselves -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_text_of_others_is_printable_and_says_what_it_was(order: str) -> None:
    shown = visible(f"a{order}b")
    assert shown.isprintable()
    assert visible(shown) == shown
    if order.isascii():
        back = shown.encode().decode("unicode_escape")
        assert back == f"a{order}b"


@pytest.mark.parametrize("text", ["Bu\u0308ro", "日本語 → …", "अनुच्छेद", "naïve ×2 ▁▂▃"])
def test_ordinary_text_stays(text: str) -> None:
    assert visible(text) == text
    assert visible("\u0338" + text) == "\\u0338" + text  # a mark on the character before it
    assert cells("日本") == 4


def test_json_keeps_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    say_json({HOSTILE: VALUE})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {HOSTILE: VALUE}
    assert all(line.isprintable() and line.isascii() for line in printed.splitlines())


def test_a_page_shows_what_a_browser_would_obey() -> None:
    class Reader(HTMLParser):
        text = ""

        def handle_data(self, data: str) -> None:
            self.text += data

        def handle_starttag(self, tag: str, attrs: object) -> None:
            raise AssertionError(f"<{tag}>")

    reader = Reader()
    reader.feed(escape(f"<b>{VALUE}"))
    reader.close()
    assert reader.text == f"<b>{visible(VALUE)}"


# Processes of their own that no command starts: the job under spark-submit, and a tool of developers.
OWN_PROCESSES = {"throughput/job.py"}


def test_nothing_else_writes_to_stdout_or_stderr() -> None:
    package = REPOSITORY / "mm2mgr"
    strange = [
        f"{path.relative_to(package)}:{line} {what}"
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).as_posix() not in {"output/console.py", *OWN_PROCESSES}
        for line, what in writes(path)
    ]
    # Flushing writes nothing of its own; the module may not import what is above it. `write_all` writes to files that it is given.
    assert [one for one in strange if not re.match(r"throughput/spark_session\.py|files\.py:\d+ os\.write$", one)] == []


def test_the_search_for_writers_finds_them(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    lines = [
        "print(1)",
        "sys.stdout.write('')",
        "click.echo('')",
        "os.write(1, b'')",
        "import rich.console",
        "import logging.handlers",
    ]
    path.write_text("\n".join(lines))
    assert {line for line, _ in writes(path)} == {1, 2, 3, 4, 5, 6}


def writes(path: Path) -> list[tuple[int, str]]:
    """Return line and name of what writes, or gives a way to write, to the two streams."""
    found: list[tuple[int, str]] = []
    is_writer: Callable[[str], bool] = re.compile(
        r"print|input|(sys\.)?(__)?(stdout|stderr)(__)?(\..*)?|(click\.)?(s?echo|echo_via_pager|prompt|progressbar|style)"
        r"|os\.write|(traceback\.)?print_.*|warnings\.show.*|(logging\.)?(basicConfig|StreamHandler|lastResort)"
    ).fullmatch
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            found += [(node.lineno, name) for name in names if name.startswith(("rich", "logging.handlers", "pprint"))]
        elif isinstance(node, ast.Call) and is_writer(ast.unparse(node.func)):
            found.append((node.lineno, ast.unparse(node.func)))
        elif isinstance(node, ast.Attribute) and node.attr in {"stdout", "stderr"} and ast.unparse(node.value) == "sys":
            found.append((node.lineno, ast.unparse(node)))
    return sorted(set(found))
