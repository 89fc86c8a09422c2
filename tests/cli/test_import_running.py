"""`import URL`: what a Connect cluster runs becomes a tree; where one does not answer, nothing is written."""

from __future__ import annotations

import pytest

from tests.fake_connect import FakeConnect, serving

from .command import Command

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


def mirror(source: str, topics: str, **more: str) -> dict[str, str]:
    return {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        **{"source.cluster.alias": source, "target.cluster.alias": "dock", "topics": topics},
        # No broker listens there: what the workers' Kafka is, nobody says.
        **{"source.cluster.bootstrap.servers": "127.0.0.1:1", "target.cluster.bootstrap.servers": "127.0.0.1:2"},
        **dict.fromkeys(("key.converter", "value.converter", "header.converter"), BYTES),
        **more,
    }


@pytest.fixture
def fake() -> FakeConnect:
    fake = FakeConnect()
    fake.add("by hand", mirror("mill", "parcels"))
    fake.add("another's", mirror("mill", "crates", **{"mm2mgr.owner": "somebody-else"}))
    fake.add("sink", {"connector.class": "com.acme.Sink"})
    return fake


def test_what_runs_becomes_a_tree_whoever_owns_it(mm2mgr: Command, fake: FakeConnect) -> None:
    with serving(fake) as url:
        said = mm2mgr("import", url, "--owner", "team", "--out", "new", code=3)
        assert "2 connectors in 2 flows" in said.out
        assert "the tree of somebody-else writes this connector, so plan blocks its adoption" in said.out
        assert "each gets what it got" in said.err
        listings = sorted(request.query for request in fake.requests if request.path == "/connectors")
        assert listings == ["expand=info", "expand=status"], "the new tree is checked with what was read"
        assert "each gets what it got" in mm2mgr("import", url, "--check", "new").out
    files = {path.name: path.read_text() for path in (mm2mgr.folder / "new").iterdir()}
    assert f"127.0.0.1: {{url: ['{url}'], kafka: dock, version: 4.3.1}}" in files["clusters.yaml"]
    assert "{connect: 127.0.0.1, connector: by hand}" in files["handover.yaml"]
    assert "from_owner" not in "".join(files.values())  # a person decides what another tree gives up
    assert "# 127.0.0.1/by hand" in files["flows.yaml"]
    assert fake.writes == []


def test_values_that_run_are_no_lines_of_a_file(mm2mgr: Command) -> None:
    fake = FakeConnect()
    fake.add("by hand", mirror("mill", r"parcels\.eu", description="3 # three racks"))
    with serving(fake) as url:
        said = mm2mgr("import", url, "--owner", "team", "--out", "new")
    assert "backslash" not in said.out
    assert "comment" not in said.out
    assert "each gets what it got" in said.err


def test_two_workers_of_a_connect_cluster_are_one_and_a_name_can_be_given(mm2mgr: Command, fake: FakeConnect) -> None:
    with serving(fake) as url, serving(fake) as other:
        mm2mgr("import", url, other, "--connect", f"east={url}", "--owner", "team", "--out", "new", code=3)
    assert f"east: {{url: ['{url}', '{other}']" in (mm2mgr.folder / "new" / "clusters.yaml").read_text()


def test_a_login_of_the_environment_is_a_placeholder(
    mm2mgr: Command, fake: FakeConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MM2MGR_CONNECT_USER", "ann")
    monkeypatch.setenv("MM2MGR_CONNECT_PASSWORD", "s3cr3t")
    with serving(fake) as url:
        mm2mgr("import", url, "--owner", "team", "--out", "new", code=3)
    mm2mgr("-f", "new", "render")
    text = (mm2mgr.folder / "new" / "clusters.yaml").read_text()
    assert "username: '${env:MM2MGR_CONNECT_USER}'" in text
    assert "s3cr3t" not in text


def test_where_one_does_not_answer_nothing_is_written(mm2mgr: Command, fake: FakeConnect, closed_port: int) -> None:
    with serving(fake) as url:
        said = mm2mgr("import", url, f"http://127.0.0.1:{closed_port}", "--owner", "team", "--out", "new", code=1)
    assert f"127.0.0.1:{closed_port}" in said.err
    assert not (mm2mgr.folder / "new").exists()
