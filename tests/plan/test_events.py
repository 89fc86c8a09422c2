"""The event log where it cannot be written: no work stops for it, nothing waits, and no other file is touched."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from mm2mgr import files
from mm2mgr.apply import rounds
from mm2mgr.apply.rounds import EventLog
from mm2mgr.errors import Mm2mgrError


def lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_full_disk_stops_no_work_and_is_named() -> None:
    log = EventLog(Path("/dev/full"))
    assert log.trouble == ""
    for _ in range(2):
        log.write("standby", {"connects": []})
    assert log.trouble == (
        "the event log /dev/full is incomplete: 2 events could not be written: No space left on device"
    )
    log.begin_run()
    assert log.trouble == "", "the next run has lost nothing yet"
    log.close()
    log.close()


def test_a_disk_that_fills_up_in_a_line_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, write, room = tmp_path / "events", os.write, [10_000]

    def writing(opened: int, data: Any) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = write(opened, data[: room[0]])
        room[0] -= done
        return done

    monkeypatch.setattr(files.os, "write", writing)
    log = EventLog(file)
    log.write("standby", {"connects": ["a"]})
    room[0] = 20
    log.write("standby", {"connects": ["b"]})
    assert [each["connects"] for each in lines(file)] == [["a"]]
    room[0] = 10_000
    log.write("standby", {"connects": ["c"]})
    assert [each["connects"] for each in lines(file)] == [["a"], ["c"]]
    assert log.trouble.endswith("1 event could not be written: No space left on device")


def test_after_a_process_that_was_killed_in_a_line_the_next_begins_on_its_own(tmp_path: Path) -> None:
    file = tmp_path / "events"
    for _ in range(2):
        log = EventLog(file)
        log.write("standby", {"connects": []})
        log.close()
    whole = file.read_text()
    file.write_text(whole[:-5])
    EventLog(file).write("resting", {"connects": {}})
    assert json.loads(file.read_text().splitlines()[-1])["event"] == "resting"
    assert file.read_text().startswith(whole[:-5] + "\n")


def test_a_pipe_without_a_reader_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Mm2mgrError, match="it is a pipe, and nobody reads it"):
        EventLog(tmp_path / "pipe")


def test_a_pipe_gets_events_until_its_reader_leaves_or_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "PIPE_SECONDS", 0.0)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    log = EventLog(tmp_path / "pipe")
    log.write("standby", {"connects": ["a"]})
    assert json.loads(os.read(reader, 1000))["connects"] == ["a"]
    for _ in range(20):
        log.write("standby", {"connects": ["x " * 5_000]})
    assert "its reader took nothing for 0 s" in log.trouble
    os.close(reader)
    log.begin_run()
    log.write("standby", {"connects": []})
    assert log.trouble.endswith("1 event could not be written: Broken pipe")
    log.close()


@pytest.mark.parametrize("content", ["owner: team\n", "{}\n", '{"time": "now"}\n', "\0" * 500, "x"])
def test_a_file_that_holds_no_events_is_left_as_it_is(tmp_path: Path, content: str) -> None:
    file = tmp_path / "events"
    file.write_text(content)
    with pytest.raises(Mm2mgrError, match="is not an event log of mm2mgr; it was left as it is"):
        EventLog(file)
    assert file.read_text() == content


def test_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(Mm2mgrError, match="Is a directory"):
        EventLog(tmp_path)


def test_an_empty_file_and_a_device_are_fine(tmp_path: Path) -> None:
    (tmp_path / "events").touch()
    EventLog(tmp_path / "events").write("standby", {"connects": []})
    assert len(lines(tmp_path / "events")) == 1
    log = EventLog(Path(os.devnull))
    log.write("standby", {"connects": []})
    assert log.trouble == ""
