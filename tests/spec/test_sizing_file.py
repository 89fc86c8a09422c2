"""overrides/sizing.yaml beside other writers: nobody's entry is lost, and the file keeps its place, owner and rights."""

from __future__ import annotations

import multiprocessing
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from mm2mgr.errors import Mm2mgrError, SpecError
from mm2mgr.spec import files
from mm2mgr.spec.files import SIZING

Entries = dict[str, dict[str, Any]]


def entry(tasks: int, reason: str = "measured") -> dict[str, Any]:
    return {"tasks_max": tasks, "reason": reason}


def text(entries: Entries) -> str:
    """Return what a file of these entries may say: it begins as the files of `size` do."""
    return (
        "# Written by `mm2mgr size` from measured throughput: review it like any change, then commit.\n"
        + yaml.safe_dump({"sizing": entries})
    )


def path_in(folder: Path, entries: Entries | None = None) -> Path:
    (folder / "overrides").mkdir(parents=True)
    path = SIZING.path([folder])
    if entries is not None:
        path.write_text(text(entries))
    return path


def content(path: Path) -> Entries:
    return dict(yaml.safe_load(path.read_text())["sizing"])


def write(
    path: Path, entries: Entries, known: set[str], before: Mapping[str, Any] | None = None
) -> tuple[bool, tuple[str, ...]]:
    return SIZING.write(path, entries, known, SIZING.read(path) if before is None else before)


def just_before_the_replacement(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Let somebody else come in between, once, at the last moment that can be noticed."""
    real, done = files.merge, list[int]()

    def late(*arguments: Any) -> dict[str, Any]:
        if not done:
            done.append(1)
            do()
        return real(*arguments)

    monkeypatch.setattr(files, "merge", late)


def test_writers_at_the_same_time_lose_no_entry(tmp_path: Path) -> None:
    path, count = path_in(tmp_path / "tree"), 15
    context = multiprocessing.get_context("spawn")
    # Each knows only its own flows: those of the others came with a tree that it has not read.
    processes = [context.Process(target=_own_flows, args=(path, name, count)) for name in "abc"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert content(path) == {f"{name}{number}": entry(number + 1) for name in "abc" for number in range(count)}
    assert [each.name for each in path.parent.iterdir()] == ["sizing.yaml"]


def _own_flows(path: Path, name: str, count: int) -> None:
    for number in range(count):
        mine = {f"{name}{one}" for one in range(count)}
        before = {flow: each for flow, each in SIZING.read(path).items() if flow in mine}
        SIZING.write(path, {f"{name}{number}": entry(number + 1)}, mine, before)


def test_what_an_editor_saves_in_between_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = path_in(tmp_path / "tree", {"a": entry(1), "b": entry(2)})
    edited = {"a": entry(1), "b": entry(9, "by hand, for Black Friday"), "c": entry(3)}
    just_before_the_replacement(monkeypatch, lambda: path.write_text(text(edited)))
    assert write(path, {"a": entry(5)}, {"a", "b", "c"}) == (True, ())
    assert content(path) == {**edited, "a": entry(5)}


@pytest.mark.parametrize("late", [True, False])
def test_an_entry_that_others_changed_since_it_was_read_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    path = path_in(tmp_path / "tree", {"a": entry(1), "b": entry(2)})
    before = SIZING.read(path)
    edited = {"a": entry(9, "by hand"), "b": entry(2)}

    def edit() -> None:
        path.write_text(text(edited))

    if late:
        just_before_the_replacement(monkeypatch, edit)
    else:
        edit()
    assert write(path, {"a": entry(5), "b": entry(6)}, {"a", "b"}, before) == (True, ("a",))
    assert content(path) == {"a": entry(9, "by hand"), "b": entry(6)}


def test_an_entry_that_others_removed_meanwhile_stays_removed(tmp_path: Path) -> None:
    path = path_in(tmp_path / "tree", {"a": entry(1), "b": entry(2)})
    before = SIZING.read(path)
    path.write_text(text({"b": entry(2)}))
    assert write(path, {"a": entry(5)}, {"a", "b"}, before) == (False, ("a",))
    assert content(path) == {"b": entry(2)}


def test_the_same_number_by_two_runs_is_no_trouble(tmp_path: Path) -> None:
    path = path_in(tmp_path / "tree", {"a": entry(1)})
    before = SIZING.read(path)
    assert write(path, {"a": entry(4, "first")}, {"a"}, before) == (True, ())
    assert write(path, {"a": entry(4, "second")}, {"a"}, before) == (False, ())
    assert content(path) == {"a": entry(4, "first")}


def test_flows_that_are_gone_are_dropped_and_those_that_somebody_added_meanwhile_stay(tmp_path: Path) -> None:
    path = path_in(tmp_path / "tree", {"a": entry(1), "gone": entry(2)})
    before = SIZING.read(path)
    path.write_text(text({**content(path), "new": entry(3)}))
    write(path, {"a": entry(1)}, {"a"}, before)
    assert content(path) == {"a": entry(1), "new": entry(3)}


def test_a_file_that_somebody_is_half_way_through_is_left_alone(tmp_path: Path) -> None:
    path = path_in(tmp_path / "tree")
    path.write_text("sizing: {a: {tasks_max: 1")
    with pytest.raises(SpecError, match="not YAML"):
        write(path, {"a": entry(5)}, {"a"}, {})
    assert path.read_text() == "sizing: {a: {tasks_max: 1"


def test_a_file_that_changes_all_the_time_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real, edits = path_in(tmp_path / "tree", {"a": entry(1)}), files.merge, iter(range(100))

    def late(*arguments: Any) -> dict[str, Any]:
        path.write_text(text({"a": entry(1), "b": entry(next(edits) + 1)}))
        return real(*arguments)

    monkeypatch.setattr(files, "merge", late)
    with pytest.raises(Mm2mgrError, match="another process keeps changing it"):
        write(path, {"a": entry(5)}, {"a", "b"})
    assert content(path)["a"] == entry(1)
    assert [each.name for each in path.parent.iterdir()] == ["sizing.yaml"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_the_file_keeps_its_rights(tmp_path: Path, mode: int) -> None:
    path = path_in(tmp_path / "tree", {"a": entry(1)})
    path.chmod(mode)
    write(path, {"a": entry(2)}, {"a"})
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_file_keeps_its_owner(tmp_path: Path) -> None:
    path = path_in(tmp_path / "tree", {"a": entry(1)})
    os.chown(path, 12345, 23456)
    write(path, {"a": entry(2)}, {"a"})
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)


def test_a_new_file_has_the_rights_of_any_new_file(tmp_path: Path) -> None:
    path, other = path_in(tmp_path / "tree"), tmp_path / "other"
    other.touch()
    write(path, {"a": entry(2)}, {"a"})
    assert path.stat().st_mode == other.stat().st_mode


@pytest.mark.parametrize("what", ["file", "folder", "new file"])
def test_no_link_leads_the_writer_out_of_the_tree(tmp_path: Path, what: str) -> None:
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    (tree if what == "folder" else tree / "overrides").mkdir(parents=True)
    outside.mkdir()
    victim = outside / "sizing.yaml"
    if what != "new file":
        victim.write_text(text({"a": {"tasks_max": 1}}))
    (tree / "overrides" if what == "folder" else SIZING.path([tree])).symlink_to(
        outside if what == "folder" else victim
    )
    with pytest.raises(Mm2mgrError, match=r"not written: a link leads out of the tree, to .*outside"):
        write(SIZING.path([tree]), {"a": entry(5)}, {"a"})
    assert sorted(each.name for each in outside.iterdir()) == ([] if what == "new file" else ["sizing.yaml"])
    assert what == "new file" or victim.read_text() == text({"a": {"tasks_max": 1}})


def test_a_link_inside_the_tree_stays_a_link(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    path = path_in(tree)
    (tree / "shared").mkdir()
    (tree / "shared" / "s.yaml").write_text(text({"a": {"tasks_max": 1}}))
    path.symlink_to(Path("..") / "shared" / "s.yaml")
    write(path, {"a": entry(5)}, {"a"})
    assert path.is_symlink()
    assert content(tree / "shared" / "s.yaml") == {"a": entry(5)}


def test_a_link_to_itself_is_an_error(tmp_path: Path) -> None:
    path = path_in(tmp_path / "tree")
    path.symlink_to(path.name)
    with pytest.raises(Mm2mgrError):
        write(path, {"a": entry(5)}, {"a"}, {})


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = path_in(tmp_path / "tree", {"a": entry(1)})

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(Mm2mgrError, match=r"sizing\.yaml: cannot be written: Permission denied"):
        write(path, {"a": entry(2)}, {"a"})
    assert content(path) == {"a": entry(1)}
    assert [each.name for each in path.parent.iterdir()] == ["sizing.yaml"]
