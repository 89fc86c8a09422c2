"""History: what is recorded is read back, by owner and Connect cluster, without secrets; what is missing is told."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mm2mgr.apply import history
from mm2mgr.apply.history import Author, Recorder, author, read, read_notes
from mm2mgr.assignment import round_robin
from mm2mgr.assignment_text import ASSIGNMENT_KEY, PLUGIN_CLASS, PluginAssignment, digest
from mm2mgr.comparison.differences import KeyChange
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.json_values import to_json
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.changes import Change
from mm2mgr.plan.draft import plan_cluster, with_deletes
from mm2mgr.plan.drift import last_applied
from mm2mgr.plan.history import HistoryEntry, with_newer
from mm2mgr.secrets import MASK
from mm2mgr.topology import Topology
from tests.kafka.conftest import mock_cluster
from tests.kafka.quick import Producer
from tests.plan.site import Site
from tests.plan.test_plan import live, running, wanted

__all__ = ["mock_cluster"]


@pytest.fixture
def topology(site: Site, mock_cluster: KafkaAccess) -> Topology:
    """The site, whose `east` has brokers with the topic."""
    with Producer(mock_cluster, timeout_seconds=30) as producer:
        producer.send((HISTORY_TOPIC, 0), b"of another version", key=b"entry/x")
    site.brokers |= {"east": mock_cluster.bootstrap_servers.partition(",")[0], "west": "west:9092"}
    return site.declare()[0]


def change(connector: str = "n", connect: str = "east", **config: str) -> Change:
    (found,) = plan_cluster(Ownership("team"), connect, [wanted(connector, **config)], {}).changes
    return found


def test_what_a_command_did_is_read_back_with_the_config_that_it_wrote(topology: Topology) -> None:
    recorder = Recorder(topology, "apply", Author("ann", "abc123", "root", "ops-1"), "bigger fetches")
    first, second = change("one", **{"my.api.key": "hunter2hunter2"}), change("two")
    recorder.begin(first)
    recorder.begin(second)
    recorder.end(first, "done")
    assert recorder.close() == {}
    found = asyncio.run(read(topology, ["east"]))
    done, begun = found.entries
    assert (done.connector, done.outcome, begun.connector, begun.outcome) == ("one", "done", "two", "begun")
    assert (done.who, done.commit, done.reason, done.command) == ("ann", "abc123", "bigger fetches", "apply")
    assert (done.user, done.host) == ("root", "ops-1")
    assert {key["key"]: key["after"] for key in done.keys}["my.api.key"] == MASK
    assert found.applied["east", "one"]["my.api.key"] == MASK
    assert found.applied["east", "one"]["name"] == "one"
    assert ("east", "two") not in found.applied, "it is not known to have been written"
    assert found.unread == {}


def test_a_long_assignment_fits_into_a_record_and_is_told_by_its_digest(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connect stores 700 kB of it, and a record of Kafka holds 1 MB, both sides of a change together."""
    places = [TopicPartition(f"topic-{'x' * 200}-{number}", 7 * number) for number in range(2_900)]
    texts = [PluginAssignment.build(round_robin(places, tasks), [10.0] * tasks, 10).text for tasks in (2, 3)]
    assert all(600_000 < len(text) < 700_000 for text in texts)
    stored: dict[str, str] = {}
    monkeypatch.setattr(Recorder, "write", lambda _, __, key, value: stored.update({key: value or ""}))
    before, after = ({"connector.class": PLUGIN_CLASS, ASSIGNMENT_KEY: text} for text in texts)
    keys = (KeyChange(ASSIGNMENT_KEY, *texts),)
    changed = Change("east", "n", "source", "update", (), keys, config=after, before=before)
    recorder = Recorder(topology, "apply", Author("me"))
    recorder.begin(changed)
    recorder.end(changed, "done")
    recorder.take_back(changed)
    assert stored
    assert max(map(len, stored.values())) < 2_000
    (entry,) = (HistoryEntry.parse(value) for key, value in stored.items() if key.startswith("entry/"))
    assert entry is not None
    (key,) = entry.keys
    assert (key["before"], key["after"]) == tuple(f"digest {digest(text)}" for text in texts)


def test_a_deleted_connector_has_no_config_any_more(topology: Topology) -> None:
    there = running(live("n"))
    (gone,) = with_deletes(plan_cluster(Ownership("team"), "east", [], there), there).changes
    for each in (change(), gone):
        recorder = Recorder(topology, "apply", Author("ann"))
        recorder.end(each, "done")
        assert recorder.close() == {}
    found = asyncio.run(read(topology, ["east"]))
    assert found.applied == {}
    assert found.entries[-1].action == "delete"


def test_what_was_rolled_back_leaves_the_config_before_it(topology: Topology) -> None:
    recorder = Recorder(topology, "apply", Author("ann"))
    new, updated = (
        change("new"),
        replace(change("old", **{"tasks.max": "2"}), action="update", before=live("old")["old"]),
    )
    for each in (new, updated):
        recorder.end(each, "done")
        recorder.take_back(each)
    assert recorder.close() == {}
    found = asyncio.run(read(topology, ["east"]))
    assert found.applied == {("east", "old"): live("old")["old"]}
    assert {entry.outcome for entry in found.entries} == {"rolled back"}
    assert last_applied(found, "east")["new"].config is None


def test_other_owners_and_other_connect_clusters_are_left_out(topology: Topology) -> None:
    entries = [entry(owner="team"), entry(owner="others"), entry(owner="team", connect="west")]
    recorder = Recorder(topology, "", Author(""))
    for recorded in entries:
        recorder.put(recorded)
    failed = recorder.close()
    assert list(failed) == ["west"]
    assert "no broker of west:9092 answered" in failed["west"]
    found = asyncio.run(read(topology))
    assert found.entries == (entries[0],)
    assert list(found.unread) == ["west"]


@pytest.mark.parametrize("state", ["RUNNING", "", "\ud800", [], 0, {}, {"after": 1}, {"after": "x", "before": []}])
def test_a_record_with_a_state_of_another_type_is_no_entry(state: object) -> None:
    assert HistoryEntry.parse(json.dumps({**to_json(entry("team")), "state": {"before": "x", "after": "y"}}))
    assert HistoryEntry.parse(json.dumps({**to_json(entry("team")), "state": state})) is None


def entry(owner: str, connect: str = "east") -> HistoryEntry:
    return HistoryEntry(f"1-{owner}", "2026-01-01T00:00:00+00:00", "ann", "", "pause", owner, connect, "n")


TEXT = st.text("abcXYZ0123456789!#%&()*+,-./:;<=>?@[]^_|~", min_size=10, max_size=30).map(lambda text: f"S3{text}S3")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.lists(TEXT, min_size=3, max_size=3, unique=True))
def test_no_secret_is_stored(monkeypatch: pytest.MonkeyPatch, site: Site, secrets: list[str]) -> None:
    stored: list[str] = []
    monkeypatch.setattr(Recorder, "write", lambda self, connect, key, value: stored.append(f"{key} {value}"))
    key, jaas = "producer.override.ssl.key.password", 'x.PlainLoginModule required username="u" password="{}";'
    config = {key: secrets[0], "producer.override.sasl.jaas.config": jaas.format(secrets[1])}
    recorder = Recorder(site.declare()[0], "apply", Author("ann"), f"password={secrets[2]}")
    recorder.begin(change("n", **config))
    recorder.end(change("n", **config), "failed", f"Invalid value {secrets[0]} for configuration {key}")
    recorder.end(change("n", **config), "done")
    assert len(stored) == 4
    plain = [secret for secret in secrets for text in stored if secret in text or json.dumps(secret)[1:-1] in text]
    assert plain == []


def git(folder: Path, *arguments: str) -> str:
    line = ["git", "-C", str(folder), "-c", "user.name=Ann", "-c", "user.email=ann@x", *arguments]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()


def test_author_and_commit_come_from_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in history._NAMES:
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "tree").mkdir()
    tree = tmp_path / "tree" / "a.yaml"
    tree.write_text("owner: team\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "user.name", "Ann")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "x")
    head = git(tmp_path, "rev-parse", "--short=12", "HEAD")
    assert author([tmp_path / "tree"]) == Author("Ann", head, history._system_user(), socket.gethostname())
    (tmp_path / "note.txt").write_text("beside the tree")
    assert author([tree]).commit == head
    tree.write_text("owner: others\n")
    assert author([tmp_path / "tree"]).commit == f"{head}+dirty"
    monkeypatch.setenv("MM2MGR_WHO", "deploy bot")
    assert author([tree]).who == "deploy bot"


def test_without_git_the_author_is_the_system_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in history._NAMES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("LOGNAME", "operator")
    assert author([tmp_path]) == Author("operator", "", "operator", socket.gethostname())


def test_what_was_recorded_is_noted_on_this_machine_for_the_pages(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MM2MGR_STATE", str(tmp_path / "state"))
    assert read_notes("team") == []
    recorder = Recorder(topology, "apply", Author("ann"))
    recorder.begin(change("one", **{"my.api.key": "hunter2hunter2"}))
    (begun,) = read_notes("team")
    recorder.end(change("one"), "done")
    (noted,) = read_notes("team")
    assert (begun.outcome, noted.outcome, noted.id) == ("begun", "done", begun.id)
    (file,) = (tmp_path / "state").iterdir()
    assert "hunter2" not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    with file.open("a") as notes:
        notes.write("damaged\n" + json.dumps(to_json(entry("others"))) + "\n")
    assert read_notes("team") == [noted], "what another owner wrote, or nobody can read, is left out"
    monkeypatch.setattr(history, "_MOST_NOTED_BYTES", 1)
    recorder.begin(change("two"))
    assert [noted.connector for noted in read_notes("team")] == ["two"]
    file.unlink()
    file.mkdir()
    recorder.begin(change("three"))
    assert read_notes("team") == []
    assert recorder.close() == {}


def test_newer_entries_bring_outcomes_and_changes_that_came_later() -> None:
    old = entry("team")
    begun, later = replace(old, id="2", outcome="begun"), replace(old, id="3", when="2026-01-01T00:00:09+00:00")
    done = replace(begun, outcome="done")
    assert with_newer([old, begun], [done, later], later.at_seconds) == [old, done, later]
    assert with_newer([done], [begun, old], later.at_seconds) == [done], "what was forgotten stays away"


def test_a_change_that_fails_again_and_again_has_one_entry(topology: Topology) -> None:
    failed = {}
    for _ in range(3):
        recorder = Recorder(topology, "reconcile", Author("ann"), "", failed)
        recorder.begin(change())
        recorder.end(change(), "failed", "no answer")
        failed = recorder.failed_entries
        assert recorder.close() == {}
    (entry,) = asyncio.run(read(topology, ["east"])).entries
    assert (entry.outcome, entry.error) == ("failed", "no answer")
