"""Odd options, addresses, plan files and folders: a sentence names the option or the file, and nothing ends in a traceback."""

from __future__ import annotations

import json
import os
import pwd
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import cache_folder, list_paths, state_folder
from mm2mgr.operations import EstateWatch, ServeOrder, Workspace
from mm2mgr.plan.planfile import read_plan
from mm2mgr.samples.store import LossStore, SampleStore
from mm2mgr.truth.keys import kafka_version
from tests.cli.command import Command
from tests.cli.load import declare, measured
from tests.plan.site import Site
from tests.spec.trees import write

TREE = """\
owner: team
clusters:
  a: {{bootstrap_servers: ['127.0.0.1:1'], metrics: {{prometheus: {{url: {metrics}}}}}}}
  b: {{bootstrap_servers: ['127.0.0.1:2']}}
connect:
  w: {{url: {url}, kafka: b}}
flows:
  logs: {{sources: [a], targets: [b], topics: {{include: [logs]}}}}
"""
GOOD = "http://127.0.0.1:1"


def tree(mm2mgr: Command, url: str = GOOD, metrics: str = GOOD) -> None:
    write(mm2mgr.tree, x=TREE.format(url=json.dumps(url), metrics=json.dumps(metrics)))


@pytest.mark.parametrize(
    ("command", "option", "values"),
    [
        ("simulate", "--traffic", ("nan", "inf", "-1", "0")),
        ("status", "--watch", ("nan", "inf", "-1", "0", "1e300")),
        ("apply --yes", "--wait", ("nan", "inf", "-1", "1e300")),
        ("check", "--timeout", ("nan", "inf", "-inf", "1e300")),
        ("lint", "--timeout", ("nan", "inf", "-1", "1e300")),
        ("sample", "--interval", ("0s", "0ms", "0.00001s", "nan", "-1s", "99999999d")),
        ("sample", "--keep", ("0s", "inf")),
        ("throughput", "--window", ("0s", "nan")),
        ("size", "--window", ("0s",)),
        ("fleet", "--window", ("0s",)),
        ("lint", "--kafka", ("1." + "9" * 5000, "x\x1b[2J")),
    ],
)
def test_a_number_that_cannot_be_meant_is_refused_by_its_option(
    mm2mgr: Command, command: str, option: str, values: tuple[str, ...]
) -> None:
    tree(mm2mgr)
    for value in values:
        said = mm2mgr(*command.split(), option, value, code=64)
        assert f"Invalid value for '{option}'" in said.err.replace(f"for {option}:", f"for '{option}':")


NO_URL = (
    *("http://", "http://:8083", "http://h:99999", "http://h:x", "http://h:-1", "http://h:0", "http://[::1"),
    *("http://[v1.x]:1", "ftp://h:1", "file:///etc/passwd", "://", "http://a b:1", "http://h:1?x=1", "http://h:1/#x"),
    *("http://user:hunter2@h:1", "http://\u202eh:1", "http://xn--z\u0301:1", "http://h\x00:1"),
)


@pytest.mark.parametrize("url", NO_URL)
def test_what_is_no_address_is_refused_with_its_place(mm2mgr: Command, url: str) -> None:
    for where in ("url", "metrics"):
        tree(mm2mgr, **{where: url})
        err = mm2mgr("plan", code=1).err
        assert "x.yaml:" in err
        assert "hunter2" not in err
    err = mm2mgr("lint", "--connect", url, "--timeout", "1", code=64).err
    assert "Invalid value for --connect: " in err
    assert "hunter2" not in err


def test_addresses_of_all_kinds_are_taken(mm2mgr: Command) -> None:
    for url in (GOOD, "http://[::1]:8083/", "https://m\u00fcnchen.example/connect", "http://h_1.example:1"):
        tree(mm2mgr, url, url)
        mm2mgr("render")


@pytest.fixture
def homeless(mm2mgr: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """A user whom the machine does not know, as in a container."""

    def unknown(number: int) -> Any:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_STATE_HOME", "MM2MGR_STATE", "MM2MGR_CACHE"):
        monkeypatch.delenv(name, raising=False)
    return mm2mgr


@pytest.mark.usefixtures("impatient")
def test_a_user_without_a_home_is_told_which_variable_helps(homeless: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(homeless)
    for command in (["status"], ["describe", "logs"]):
        said = homeless(*command, code=1)
        assert "error: this user has no home folder, and $MM2MGR_STATE is not set\nhint: set $MM2MGR_STATE" in said.err
    for folder, variable in ((cache_folder, "MM2MGR_CACHE"), (state_folder, "MM2MGR_STATE")):
        with pytest.raises(Mm2mgrError, match=variable):
            folder()
        monkeypatch.setenv(variable, "here")
        assert folder() == Path("here")


# --- plan files -----------------------------------------------------------------------------------------------------------

PLAN = {"mm2mgr-plan": 1, "plan": {"clusters": []}, "clusters": ["clusters"], "only": None, "templates": None}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "",
        "\ufeff{}",
        json.dumps([PLAN]),
        json.dumps({**PLAN, "plan": {"clusters": 5}}),
        json.dumps({**PLAN, "plan": {"clusters": [7]}}),
        json.dumps({**PLAN, "plan": {"clusters": [], "allow_deletes": "x"}}),
        json.dumps({**PLAN, "plan": {"clusters": [], "allow_deletes": 1e999}}),
        json.dumps({**PLAN, "clusters": ["a\0b"]}),
        json.dumps({**PLAN, "templates": 5}),
        json.dumps({**PLAN, "templates": "a\0b"}),
    ],
)
def test_what_is_no_plan_file_is_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(Mm2mgrError, match="plan file"):
        read_plan(path)


def test_a_plan_goes_into_a_pipe_that_stays_one(site: Site, mm2mgr: Command) -> None:
    assert site
    pipe = mm2mgr.folder / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
    reader.start()
    mm2mgr("plan", "--out", "pipe")
    reader.join(10)
    assert pipe.is_fifo()
    assert json.loads(got[0])["mm2mgr-plan"] == 1


def test_a_plan_that_cannot_be_written_is_said(site: Site, mm2mgr: Command) -> None:
    assert site
    (mm2mgr.folder / "file").write_text("")
    for out in ("file/x", "nowhere/x"):
        assert f"error: {out}: the plan could not be written: " in mm2mgr("plan", "--out", out, code=1).err


# --- folders that cannot be read ------------------------------------------------------------------------------------------


@pytest.fixture
def store(mm2mgr: Command) -> Path:
    declare(mm2mgr.tree, "127.0.0.1:1", "127.0.0.1:2")
    return measured(mm2mgr.folder / "store", {("a", "logs.web", number): 1e6 for number in range(2)})


def closed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the system refuse to list a folder, whoever asks: to root it refuses nothing."""
    names, real = {folder, folder.relative_to(Path.cwd())}, os.listdir

    def refusing(path: Any = ".") -> Any:
        if Path(path) in names:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "listdir", refusing)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", [".", "samples", "throughput"])
def test_a_store_that_cannot_be_read_is_not_an_empty_one(
    mm2mgr: Command, monkeypatch: pytest.MonkeyPatch, store: Path, name: str
) -> None:
    folder = store / name
    before = mm2mgr.files()
    closed(monkeypatch, folder)
    commands = [["throughput", "--no-spark"]]
    if name == "throughput":
        commands += [["throughput", "--show"], ["size"], ["fleet"], ["simulate", "--traffic", "2"]]
    for command in commands:
        err = mm2mgr(*command, "--store", "store", code=1).err
        assert "cannot be read: Permission denied" in err
    assert mm2mgr.files() == before


@pytest.mark.usefixtures("impatient")
def test_a_store_without_rights_is_named_in_words_and_blinds_nobody(
    mm2mgr: Command, monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    """As the system refuses everything below a folder of mode 000."""
    store = store.resolve()
    for name in ("stat", "lstat", "listdir", "scandir"):
        real = getattr(os, name)

        def refusing(path: Any = ".", *more: Any, real: Callable[..., Any] = real, **named: Any) -> Any:
            is_inside = isinstance(path, str | os.PathLike) and store in (
                place := Path(path).absolute(),
                *place.parents,
            )
            if is_inside and (place != store or real.__name__ in ("listdir", "scandir")):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *more, **named)

        monkeypatch.setattr(os, name, refusing)
    watch = EstateWatch(Workspace((mm2mgr.tree,)), ServeOrder(store=store))
    watch.look_once()
    assert watch.view.error == ""
    assert watch.view.look is not None
    status = watch.view.look.status
    assert [warning for warning in status.warnings if "cannot be read: Permission denied" in warning] != []
    assert "PermissionError" not in str(watch.view.overview_dict(0.0))
    for read in (SampleStore(store).hours, lambda: LossStore(store, "me").read()):
        with pytest.raises(Mm2mgrError, match="cannot be read: Permission denied"):
            read()


def test_a_table_is_not_made_anew_where_it_cannot_be_read(monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
    from mm2mgr.samples.batch import Batch

    closed(monkeypatch, store / "samples")
    with pytest.raises(Mm2mgrError, match="samples: cannot be read"):
        SampleStore(store).append(Batch("a", "test", 1_763_722_800_000, ["orders"], [0], end_offset=[1]))


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert list_paths(tmp_path / "nowhere", "*") == list_paths(tmp_path / "file" / "x", "*") == []
    assert [path.name for path in list_paths(tmp_path, "f*")] == ["file"]


def test_a_version_of_a_million_digits_is_none() -> None:
    assert kafka_version("9" * 1_000_000 + ".1") is None
    assert kafka_version("4.3.1") == "4.3.1"
