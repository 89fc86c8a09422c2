"""Nobody's files are deleted or overwritten: sandbox, demo, and every command that writes a file."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mm2mgr import errors, files
from mm2mgr.demo.story import demo_folder
from mm2mgr.errors import KafkaError, Mm2mgrError, SandboxError
from mm2mgr.files import Locked, replace_file
from mm2mgr.kafka.access import resolve
from mm2mgr.observe import state_file
from mm2mgr.observe.memory import Memory
from mm2mgr.plan.changes import Plan
from mm2mgr.plan.planfile import write_plan
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.store import SampleStore
from mm2mgr.sandbox import layout
from mm2mgr.sandbox.folder import MARKER, Endpoints, only_one, write_tree
from mm2mgr.sandbox.layout import Layout, Sandbox, ServerRecord, State, read_state, write_state
from mm2mgr.sandbox.process import ProcessId, started_at
from mm2mgr.spec.files import SIZING
from tests.cli.command import Command, until
from tests.cli.conftest import mm2mgr, site
from tests.plan.site import Site

__all__ = ["mm2mgr", "site"]

ENDPOINTS = Endpoints(
    {"here": "127.0.0.1:1", "there": "127.0.0.1:2"}, {"mover": "http://127.0.0.1:3"}, {"mover": "there"}
)
ONE = Layout(sources=("here",), aggregates=("there",), connect={"mover": "there"})
PORTS = {"PLAINTEXT": 15_001, "CONTROLLER": 15_002}
# What each command would have written to or removed before it looked whose the folder is.
COMMANDS = [("demo",), ("sandbox", "up"), ("sandbox", "down")]


class Touched(AssertionError):
    """A command went on to start something although the folder is not its own."""


@pytest.fixture(autouse=True)
def _no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever gets as far as looking for Java has accepted the folder."""

    def refuse() -> None:
        raise Touched

    monkeypatch.setattr(layout, "kafka_runtime", refuse)
    monkeypatch.setattr(errors, "need_extras", lambda *_: None)


def snapshot(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    """Return mode and content of everything below a folder, links not followed."""

    def content(path: Path) -> bytes | str:
        if path.is_symlink():
            return os.readlink(path)
        return path.read_bytes() if path.is_file() else ""

    return {str(path.relative_to(folder)): (path.lstat().st_mode, content(path)) for path in folder.rglob("*")}


def claimed(folder: Path, use: str = "sandbox") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text(f"mm2mgr {use}\n")
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "held",
    [
        ["clusters/clusters.yaml", "clusters/flows.yaml"],
        ["samples/hour=2026-01-01T00/1-0.parquet", "sandbox/state.lock"],
        ["notes.txt"],
        ["state.lock", "kafka/mine/readme.md"],
        ["state.json"],
        [MARKER],
    ],
    ids=lambda held: held[0],
)
def test_a_folder_that_is_not_ours_is_refused_untouched(
    mm2mgr: Command, command: tuple[str, ...], held: list[str]
) -> None:
    for name in held:
        (mm2mgr.folder / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (mm2mgr.folder / "mine" / name).write_text("owner: mine\n")
    before = snapshot(mm2mgr.folder)
    said = mm2mgr(*command, "--dir", "mine", code=1)
    assert snapshot(mm2mgr.folder) == before
    assert "mine was not made by `mm2mgr " in said.err
    assert "nothing was touched\nhint: name a new or an empty folder: --dir DIR\n" in said.err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_current_folder_with_a_tree_is_refused(mm2mgr: Command, command: tuple[str, ...]) -> None:
    mm2mgr("init")
    before = snapshot(mm2mgr.folder)
    mm2mgr(*command, "--dir", ".", code=1)
    assert snapshot(mm2mgr.folder) == before


def test_the_folder_of_a_demo_is_none_of_a_sandbox_and_the_other_way_round(mm2mgr: Command) -> None:
    claimed(mm2mgr.folder / "d", "demo")
    claimed(mm2mgr.folder / "s", "sandbox")
    assert "not made by `mm2mgr sandbox`" in mm2mgr("sandbox", "up", "--dir", "d", code=1).err
    assert "not made by `mm2mgr sandbox`" in mm2mgr("sandbox", "down", "--dir", "d", code=1).err
    assert "not made by `mm2mgr demo`" in mm2mgr("demo", "--dir", "s", code=1).err


@pytest.mark.parametrize("what", ["absent", "empty", "claimed"])
def test_a_sandbox_s_own_folders_are_taken(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "deep" / "sandbox"
    if what != "absent":
        folder.mkdir(parents=True)
    if what == "claimed":
        claimed(folder)
    for _ in range(2):
        with pytest.raises(Touched):
            Sandbox(folder).start(ONE)
    assert (folder / MARKER).read_text().startswith("mm2mgr sandbox\n")
    Sandbox(folder).stop()


def test_a_folder_that_cannot_be_made_is_an_error(mm2mgr: Command) -> None:
    (mm2mgr.folder / "file").touch()
    for command in COMMANDS:
        assert "error: " in mm2mgr(*command, "--dir", "file/x", code=1).err


# --- out of the folder --------------------------------------------------------------------------------------------------

LINKS = [
    "kafka",
    "kafka/here",
    "kafka/here/data",
    "kafka/here/data/topic-0",
    "kafka/here/broker.properties",
    "connect/mover",
    "clusters",
    "clusters/clusters.yaml",
    "state.json",
    "state.lock",
    "state.new",
]


@pytest.mark.parametrize("link", LINKS)
def test_a_link_inside_leads_nowhere(mm2mgr: Command, link: str) -> None:
    victim, folder = mm2mgr.folder / "victim", claimed(mm2mgr.folder / "mine")
    for name in ("data/keep", "here/data/keep", "clusters.yaml"):
        (victim / name).parent.mkdir(parents=True, exist_ok=True)
        (victim / name).write_text("# keep\n")
    write_state(folder / "state.json", State(ONE, {"here": ServerRecord(ProcessId(4_000_000, "1"), PORTS)}))
    (folder / link).parent.mkdir(parents=True, exist_ok=True)
    (folder / link).unlink(missing_ok=True)
    (folder / link).symlink_to(victim / "clusters.yaml" if "." in link else victim)
    before = snapshot(mm2mgr.folder)
    for command in ("up", "down"):
        said = mm2mgr("sandbox", command, "--dir", "mine", code=1)
        assert f"mine/{link} is a symbolic link, which mm2mgr never puts there; nothing was touched" in said.err
    assert snapshot(mm2mgr.folder) == before


@pytest.mark.parametrize("link", ["clusters", "samples", "samples/hour=2026-01-01T00", "sandbox", "state.lock"])
def test_a_link_inside_a_demo_leads_nowhere(mm2mgr: Command, link: str) -> None:
    victim, folder = mm2mgr.folder / "victim", claimed(mm2mgr.folder / "mine", "demo")
    victim.mkdir()
    (victim / "keep").touch()
    (folder / link).parent.mkdir(exist_ok=True)
    (folder / link).symlink_to(victim / "keep" if link == "state.lock" else victim)
    before = snapshot(mm2mgr.folder)
    assert "is a symbolic link" in mm2mgr("demo", "--dir", "mine", code=1).err
    assert snapshot(mm2mgr.folder) == before


def test_a_pipe_is_refused_and_never_waited_for(mm2mgr: Command) -> None:
    folder = claimed(mm2mgr.folder / "mine")
    os.mkfifo(folder / "state.json")
    for command in ("up", "down"):
        assert "neither a file nor a folder" in mm2mgr("sandbox", command, "--dir", "mine", code=1).err
    assert "cannot read the sandbox's state" in mm2mgr("sandbox", "status", "--dir", "mine", code=1).err


STATE: dict[str, Any] = {
    "format": 1,
    "sources": ["here"],
    "aggregates": ["there"],
    "connect": {"mover": "there"},
    "servers": {"here": {"pid": 4_000_000, "started": "1", "ports": PORTS}},
}


def altered(**changes: Any) -> dict[str, Any]:
    server = STATE["servers"]["here"] | {key: value for key, value in changes.items() if key not in STATE}
    return STATE | {"servers": {"here": server}} | {key: value for key, value in changes.items() if key in STATE}


def named(name: str) -> dict[str, Any]:
    return altered(sources=[name], servers={name: STATE["servers"]["here"]})


HOSTILE: dict[str, dict[str, Any]] = {
    "out by a name": named("../../victim"),
    "absolute name": named("/victim"),
    "no name": named(""),
    "dots": named(".."),
    "yaml in a name": named("a: {b: c}\nowner"),
    "name that is none": altered(sources=[["x"]], servers={}),
    "connect out": altered(connect={"../../victim": "there"}, servers={}),
    "pid 0 that never started": altered(pid=0, started=None),
    "pid 1": altered(pid=1, started=started_at(1) or "1"),
    "all processes": altered(pid=-1),
    "pid true": altered(pid=True),
    "huge pid": altered(pid=2**70),
    "pid as text": altered(pid="7"),
    "a port that is an address": altered(ports={"PLAINTEXT": "80@example.org/", "CONTROLLER": 1}),
    "no ports": altered(ports={}),
    "a server of no layout": altered(servers={"else": STATE["servers"]["here"]}),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_state_is_refused(mm2mgr: Command, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    victim, folder = mm2mgr.folder / "victim" / "data", claimed(mm2mgr.folder / "mine")
    victim.mkdir(parents=True)
    (victim / "keep").touch()
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "killpg", lambda *what: signals.append(what))
    monkeypatch.setattr(os, "kill", lambda *what: signals.append(what))
    (folder / "state.json").write_text(json.dumps(HOSTILE[kind]))
    before = snapshot(mm2mgr.folder)
    for command in ("status", "down", "up"):
        said = mm2mgr("sandbox", command, "--dir", "mine", code=1)
        assert "delete the file" in said.err or "delete state.json" in said.err
    before |= {"mine/state.lock": (stat.S_IFREG | 0o644, b"")}
    assert {name: found[1] for name, found in snapshot(mm2mgr.folder).items()} == {
        name: found[1] for name, found in before.items()
    }
    assert signals == []


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format": 1' + " " * 2_000_000 + "}"])
def test_a_state_without_measure_is_refused(tmp_path: Path, text: str) -> None:
    (claimed(tmp_path) / "state.json").write_text(text)
    with pytest.raises(SandboxError, match="cannot read the sandbox's state"):
        Sandbox(tmp_path).stop()


@pytest.fixture
def sleeper() -> Iterator[Callable[[str], ProcessId]]:
    """Start processes that lead groups of their own, as servers do; each is ended by its own id."""
    started: list[subprocess.Popen[bytes]] = []

    def start(script: str) -> ProcessId:
        process = subprocess.Popen(["sh", "-c", script], start_new_session=True)
        started.append(process)
        until(lambda: started_at(process.pid), "the process has started")
        return ProcessId(process.pid, str(started_at(process.pid)))

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("elsewhere", ["", "-Dmm2mgr.log.directory=/somewhere/else/kafka/here"])
def test_a_process_of_somebody_else_is_never_signalled(
    mm2mgr: Command, sleeper: Callable[[str], ProcessId], elsewhere: str
) -> None:
    folder = claimed(mm2mgr.folder / "mine")
    stranger = sleeper(f"sleep 60; : {elsewhere}")  # its number and its start are as the state says
    write_state(folder / "state.json", State(ONE, {"here": ServerRecord(stranger, PORTS)}))
    (folder / "kafka" / "here" / "data").mkdir(parents=True)
    for command in ("down", "up", "status"):
        said = mm2mgr("sandbox", command, "--dir", "mine", code=1)
        assert f"process {stranger.pid}, recorded as broker here, was not started in " in said.err
    assert stranger.alive()
    assert (folder / "kafka" / "here" / "data").is_dir()
    assert read_state(folder / "state.json") is not None


def test_a_server_is_found_by_its_folder_also_through_a_link_to_it(
    tmp_path: Path, sleeper: Callable[[str], ProcessId]
) -> None:
    folder = claimed(tmp_path / "a folder")
    (tmp_path / "link").symlink_to(folder)
    own = sleeper(f"trap 'exit 0' TERM; sleep 60 & wait; : '-Dmm2mgr.log.directory={folder / 'kafka' / 'here'}'")
    write_state(folder / "state.json", State(ONE, {"here": ServerRecord(own, PORTS)}))
    assert [each.running for each in Sandbox(tmp_path / "link").status()] == [True]
    Sandbox(tmp_path / "link").stop()
    assert not own.alive()


# --- the tree of a sandbox ----------------------------------------------------------------------------------------------


def test_a_tree_is_written_again_unless_people_changed_it(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "clusters", ENDPOINTS)
    moved = Endpoints({"here": "127.0.0.1:9", "there": "127.0.0.1:8"}, ENDPOINTS.connect_urls, {"mover": "there"})
    write_tree(tree, moved)
    assert "127.0.0.1:9" in (tree / "clusters.yaml").read_text()
    with (tree / "flows.yaml").open("a") as flows:
        flows.write("# mine\n")
    write_tree(tree, ENDPOINTS)
    assert (tree / "flows.yaml").read_text().endswith("# mine\n")
    with (tree / "clusters.yaml").open("a") as clusters:
        clusters.write("# mine\n")
    before = snapshot(tree)
    with pytest.raises(SandboxError, match=r"clusters\.yaml was written or changed by somebody else"):
        write_tree(tree, moved)
    assert snapshot(tree) == before


def test_up_looks_at_the_tree_before_it_starts_anything(mm2mgr: Command) -> None:
    tree = claimed(mm2mgr.folder / "mine") / "clusters"
    tree.mkdir()
    (tree / "clusters.yaml").write_text("owner: mine\n")
    assert "was written or changed by somebody else" in mm2mgr("sandbox", "up", "--dir", "mine", code=1).err


# --- the folder of a demo -----------------------------------------------------------------------------------------------


def demo_files(folder: Path, hours: int = 2) -> None:
    """Leave what a demo leaves."""
    write_tree(folder / "clusters", ENDPOINTS)
    SIZING.write(folder / "clusters" / "overrides" / "sizing.yaml", {"f": {"tasks_max": 2}}, ["f"], {})
    for hour in range(hours):
        batch = Batch("here", "kafka-offsets", 1_795_255_200_000 + hour * 3_600_000, ["t"], [0], end_offset=[1])
        SampleStore(folder / "samples").append(batch)


def test_a_demo_runs_again_where_one_ran(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with demo_folder(folder):
        demo_files(folder)
    with demo_folder(folder):
        assert not (folder / "clusters").exists()
        assert not (folder / "samples").exists()
        with pytest.raises(Locked, match="another process is running the demo"), demo_folder(folder):
            pass


@pytest.mark.parametrize(
    "mine",
    [
        *("clusters/own.yaml", "clusters/flows.yaml", "clusters/clusters.yaml", "clusters/overrides/sizing.yaml"),
        *("clusters/overrides/own.yaml", "samples/notes.txt"),
    ],
)
def test_a_demo_does_not_remove_what_people_added_or_changed(mm2mgr: Command, mine: str) -> None:
    folder = claimed(mm2mgr.folder / "mine", "demo")
    demo_files(folder)
    (folder / mine).write_text("# mine\n")
    before = snapshot(folder)
    said = mm2mgr("demo", "--dir", "mine", code=1)
    assert f"the demo would remove mine/{mine}, which no demo left like that; nothing was touched" in said.err
    assert snapshot(folder) == before


def test_months_of_samples_outlive_a_demo(tmp_path: Path) -> None:
    folder = tmp_path / ".mm2mgr"
    demo_files(folder, hours=5)
    (folder / "sandbox").mkdir()
    (folder / "sandbox" / "state.lock").touch()
    claimed(folder, "demo")
    with pytest.raises(SandboxError, match=r"would remove .*and 2 more"), demo_folder(folder):
        pass
    assert len(SampleStore(folder / "samples").hours()) == 5
    SampleStore(folder / "samples").expire(2**60)
    with pytest.raises(SandboxError, match=r"would remove .*and 2 more"), demo_folder(folder):
        pass


# --- what other commands write ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", ["clusters.yaml", "flows.yaml"])
def test_init_does_not_write_through_a_link(mm2mgr: Command, kept: str) -> None:
    mm2mgr.tree.mkdir()
    (mm2mgr.tree / kept).symlink_to(mm2mgr.folder / "not-there-yet")
    assert f"clusters/{kept} exists already; nothing was written" in mm2mgr("init", code=1).err
    assert sorted(path.name for path in mm2mgr.folder.rglob("*")) == ["clusters", kept]


@pytest.mark.parametrize("through", ["file", "link"])
def test_a_plan_does_not_replace_another_file(site: Site, mm2mgr: Command, through: str) -> None:
    out = notes = mm2mgr.folder / "notes.yaml"
    notes.write_text("owner: nobody\n")
    if through == "link":
        out = mm2mgr.folder / "plan.json"
        out.symlink_to(notes)
    before = mm2mgr.files()
    said = mm2mgr("plan", "--out", out, code=1)
    assert f"{out} exists and is not a plan file of mm2mgr; it was left as it is" in said.err
    assert said.out == ""
    assert mm2mgr.files() == before


def test_a_plan_replaces_a_plan_an_empty_file_and_what_a_link_names(site: Site, mm2mgr: Command) -> None:
    (mm2mgr.folder / "plan.json").touch()
    (mm2mgr.folder / "newest").symlink_to("plan.json")
    for _ in range(2):
        mm2mgr("plan", "--out", "newest")
        assert json.loads((mm2mgr.folder / "plan.json").read_text())["mm2mgr-plan"] == 1
        assert (mm2mgr.folder / "newest").is_symlink()
    assert stat.S_IMODE((mm2mgr.folder / "plan.json").stat().st_mode) == 0o600
    assert sorted(path.name for path in mm2mgr.folder.iterdir()) == ["clusters", "newest", "plan.json"]


def test_a_device_or_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)) as reader:
        write_plan(pipe, Plan("me", ()), ["clusters"], None, None)
        assert json.load(reader)["mm2mgr-plan"] == 1
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("words", [("plan", "--out"), ("apply", "--events"), ("size", "--page")], ids=" ".join)
def test_a_dash_is_no_file_to_write(site: Site, mm2mgr: Command, words: tuple[str, str]) -> None:
    refused = mm2mgr(*words, "-", code=64)
    assert "name a file: /dev/stdout is standard output, ./- a file called -" in refused.err
    assert not (mm2mgr.folder / "-").exists()


def test_a_file_called_dash_is_written_where_it_is_meant(site: Site, mm2mgr: Command) -> None:
    mm2mgr("plan", "--out", "./-")
    assert json.loads((mm2mgr.folder / "-").read_text())["mm2mgr-plan"] == 1


# --- a pipe, a device or a socket where a file is expected: nobody waits for it, and it stays -----------------------------


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


def _link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


SPECIAL = {"a pipe": _pipe, "a socket": _socket, "a device": _link_to_device}


# Files of the package, what is a regular file or was looked at before, and what is opened for a child.
LOOKS_FIRST = {
    "output/console.py": 1,
    "apply/rounds.py": 3,
    "operations/plugin.py": 1,
    "samples/tables.py": 1,
    "sandbox/folder.py": 3,
    "sandbox/kafka_servers.py": 1,
    "sandbox/layout.py": 1,
    "sandbox/process.py": 2,
    "throughput/engine.py": 3,  # below /proc and /sys
    "throughput/job.py": 2,  # of a folder that it made
    "sandbox/jars.py": 4,  # of the package, and of the folder that it made
    "sandbox/runtime.py": 1,
    "sandbox/server.py": 1,
    "serve/pages/base.py": 1,  # of the package
    "spec/files.py": 2,
    "truth/keys.py": 2,
}


@pytest.fixture(params=SPECIAL)
def special(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    path = tmp_path / "me.json"
    SPECIAL[request.param](path)
    return request.param, path


def test_a_memory_that_is_no_file_is_named_and_left_alone(special: tuple[str, Path]) -> None:
    kind, path = special
    mode = path.lstat().st_mode
    assert state_file.load(path) == Memory()
    assert state_file.timed_looks(path) == state_file.TimedLooks()
    *_, warnings = state_file.change(path, lambda memory: memory)
    assert f"cannot be read (it is {kind}, not a file)" in warnings[0]
    assert f"cannot be written (it is {kind}, not a file)" in warnings[1]
    assert path.lstat().st_mode == mode
    assert [each.name for each in path.parent.iterdir() if each.suffix != ".lock"] == [path.name]


def test_no_file_of_another_kind_is_replaced(special: tuple[str, Path]) -> None:
    kind, path = special
    with pytest.raises(OSError, match=f"it is {kind}, not a file"):
        replace_file(path, "text")
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_placeholder_that_names_no_file_is_an_error(
    special: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PIPE_SECONDS", 0.05)
    kind, path = special
    for provider in (f"${{file:{path}:key}}", f"${{directory:{path.parent}:{path.name}}}"):
        with pytest.raises(KafkaError, match=rf"dc1: \$.* (cannot be read: it is {kind}|has no value)"):
            resolve("dc1", provider)


def test_a_pipe_can_be_read_once_and_is_not_changed(mm2mgr: Command, tmp_path: Path) -> None:
    """What a shell's `<(command)` passes."""
    text = '{"name": "x", "config": {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"}}'
    reader, writer = os.pipe()
    try:
        os.write(writer, text.encode())
        os.close(writer)
        refused = mm2mgr("lint", "--fix", f"/dev/fd/{reader}", code=1)
    finally:
        os.close(reader)
    assert "cannot be changed: it is a pipe, not a file" in refused.err


def test_nothing_reads_or_writes_files_but_the_module_for_it() -> None:
    """Any other reader waits for a pipe that stands in a file's place. Those left read files of the package, or look at the kind before."""
    package = Path(files.__file__).parent
    pattern = re.compile(r"\.read_text\(|\.read_bytes\(|(?<!\bos)\.open\(|(?<![\w.])open\(")
    readers = {
        path.relative_to(package).as_posix(): count
        for path in package.rglob("*.py")
        if path != Path(files.__file__) and (count := len(pattern.findall(path.read_text(encoding="utf-8"))))
    }
    assert readers == LOOKS_FIRST


def test_a_page_does_not_replace_another_file(tmp_path: Path) -> None:
    from mm2mgr.cli.options import write_page

    page, other = tmp_path / "load.html", tmp_path / "report.html"
    other.write_text("<!doctype html><title>mine</title>")
    write_page(page, [])
    write_page(page, [])
    with pytest.raises(Mm2mgrError, match="is not a page of mm2mgr"):
        write_page(other, [])
    assert "mine" in other.read_text()


@pytest.mark.parametrize("text", ["sizing: {f: {tasks_max: 3}}\n", "flows: {}\n", "{header}flows: {{}}\n"])
def test_size_does_not_overwrite_a_file_that_people_wrote(tmp_path: Path, text: str) -> None:
    SIZING.write(tmp_path / "made.yaml", {"f": {"tasks_max": 2}}, ["f"], {})
    header = (tmp_path / "made.yaml").read_text().partition("sizing:")[0]
    mine = tmp_path / "sizing.yaml"
    mine.write_text(text.format(header=header) if "{header}" in text else text)
    before = mine.read_bytes()
    with pytest.raises(Mm2mgrError, match="would be overwritten, but"):
        SIZING.write(mine, {"f": {"tasks_max": 2}}, ["f"], {})
    assert mine.read_bytes() == before
    SIZING.write(tmp_path / "made.yaml", {"f": {"tasks_max": 4}}, ["f"], {})


def test_a_folder_with_files_of_somebody_else_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "certificate.pem").write_text("precious")
    store = SampleStore(tmp_path)
    with pytest.raises(Mm2mgrError, match="samples holds files and is not a table"):
        store.append(Batch("a", "test", 1_763_722_800_000, ["orders"], [0], end_offset=[1]))
    assert [path.name for path in tmp_path.rglob("*")] == ["samples", "certificate.pem"]


def test_only_one_demo_or_sandbox_changes_a_folder(mm2mgr: Command) -> None:
    folder = claimed(mm2mgr.folder / "mine")
    with only_one(folder):
        assert "another process is starting or stopping" in mm2mgr("sandbox", "down", "--dir", "mine", code=1).err


def test_the_default_folders_are_made_below_the_current_one(mm2mgr: Command) -> None:
    """Up to where Java is looked for, as a process of its own, so that nothing of this one stands in."""
    code = "import sys; from mm2mgr.sandbox import layout\ndef no(): raise SystemExit(77)\nlayout.kafka_runtime = no\n"
    code += "from mm2mgr.cli import main; main()"
    for _ in range(2):
        ran = subprocess.run([sys.executable, "-c", code, "sandbox", "up"], capture_output=True, text=True, check=False)
        assert ran.returncode == 77, ran.stderr
    assert (mm2mgr.folder / ".mm2mgr" / "sandbox" / MARKER).is_file()
    assert mm2mgr("sandbox", "down").err == ""
