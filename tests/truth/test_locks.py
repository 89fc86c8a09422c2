"""Each supported Kafka line has one lock file that holds the broker, Connect, MirrorMaker and a log binding."""

from __future__ import annotations

import re

import pytest

from mm2mgr.sandbox.jars import known_versions, lock_file, read_lock
from tools.kafka_keys.generate import LOCKS, releases


def test_one_release_a_line() -> None:
    assert len(releases()) == len(known_versions()) + len(LOCKS)
    assert set(releases().values()) == {*known_versions(), *LOCKS}


@pytest.mark.parametrize("release", LOCKS)
def test_the_lock_of_a_line_that_is_only_read_has_the_jars_that_are_read(release: str) -> None:
    artifacts = read_lock(LOCKS[release])
    assert {(artifact.group, artifact.version) for artifact in artifacts} == {("org.apache.kafka", release)}
    names = {artifact.name for artifact in artifacts}
    assert {"kafka-clients", "connect-api", "connect-runtime", "connect-mirror", "connect-mirror-client"} <= names


@pytest.mark.parametrize("version", known_versions())
def test_a_lock_is_complete_and_unambiguous(version: str) -> None:
    artifacts = read_lock(lock_file(version))
    assert len({artifact.file_name for artifact in artifacts}) == len(artifacts)
    assert all(re.fullmatch(r"[0-9a-f]{64}", artifact.sha256) for artifact in artifacts)
    names = {artifact.name for artifact in artifacts}
    assert {"kafka_2.13", "connect-runtime", "connect-mirror", "connect-mirror-client", "log4j-slf4j-impl"} <= names
    assert {artifact.version for artifact in artifacts if artifact.group == "org.apache.kafka"} == {version}
    # Before 4.0 (KIP-653) Kafka's own classes use log4j 1's API, which reload4j answers.
    assert ("reload4j" in names) == version.startswith("3.")
