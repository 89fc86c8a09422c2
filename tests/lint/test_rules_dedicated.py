"""mm2.properties: lines that the driver ignores, each with near misses, and the fix applied."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.lint.findings import Hit, rules_of
from mm2mgr.lint.reading import read_files
from mm2mgr.lint.rules import files as dedicated_rules
from mm2mgr.lint.rules import lint
from mm2mgr.lint.subject import Estate

HEAD = "clusters = us-west, us-east\nus-west.bootstrap.servers = w:9092\nus-east.bootstrap.servers = e:9092\n"
ENABLED = "us-west->us-east.enabled = true\n"
# The file that Kafka ships, less its comments, with the lines that its documentation adds.
KAFKAS_OWN = """\
clusters = A, B
A.bootstrap.servers = A_host1:9092, A_host2:9092, A_host3:9092
B.bootstrap.servers = B_host1:9092, B_host2:9092, B_host3:9092
A->B.enabled = true
A->B.topics = .*
B->A.enabled = true
B->A.topics = .*
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
replication.policy.separator = _
sync.topic.acls.enabled = false
emit.heartbeats.interval.seconds = 5
A.security.protocol = SSL
ssl.truststore.location = /var/ssl/truststore.jks
A.producer.enable.idempotence = true
A.config.storage.topic = mm2-configs
A->B.transforms = filter
A->B.transforms.filter.type = org.apache.kafka.connect.transforms.Filter
dedicated.mode.enable.internal.rest = true
listeners = http://localhost:8080
rest.advertised.listener = http
tasks.max = 3
"""


def estate(folder: Path, text: str) -> Estate:
    (folder / "mm2.properties").write_text(text)
    return read_files([folder / "mm2.properties"])


def told(folder: Path, text: str) -> list[tuple[str, Hit]]:
    found = estate(folder, text)
    return [(rule.id, hit) for rule in rules_of(dedicated_rules) if rule.over for hit in rule.over(found)]


@pytest.mark.parametrize(
    ("line", "rule", "fix"),
    [
        ("producer.acks = 1", "top-level-client", "us-east.producer.acks"),
        ("consumer.max.poll.records = 1", "top-level-client", "us-west.consumer.max.poll.records"),
        ("admin.request.timeout.ms = 1", "top-level-client", "us-east.admin.request.timeout.ms"),
        ("producer.lingr.ms = 1", "top-level-client", "us-east.producer.lingr.ms"),
        ("transforms.x.type = a", "top-level-ignored", "us-west->us-east.transforms.x.type"),
        ("exactly.once.support = required", "top-level-ignored", "us-west->us-east.exactly.once.support"),
        ("topic.creation.enable = true", "top-level-ignored", "remove it"),
        ("use.defaults.from = source", "top-level-ignored", "us-west->us-east.use.defaults.from"),
        ("producer.override.acks = all", "top-level-ignored", "us-west->us-east.producer.override.acks"),
        ("source.consumer.fetch.max.bytes = 1", "top-level-ignored", "us-west->us-east.source.consumer.fetch"),
        ("source.cluster.bootstrap.servers = x:1", "top-level-ignored", "us-west->us-east.source.cluster"),
        ("offset.flush.interval.ms = 1", "top-level-ignored", "us-east.offset.flush.interval.ms"),
        ("plugin.path = /x", "top-level-ignored", "us-east.plugin.path"),
        ("linger.ms = 5", "top-level-ignored", "us-east.producer.linger.ms"),
        ("sync.topic.acl.enabled = false", "top-level-ignored", "write sync.topic.acls.enabled"),
        ("my.filter.list = a", "top-level-ignored", "us-west->us-east.my.filter.list"),
        ("us-esat.security.protocol = SSL", "unknown-cluster", "write us-east"),
        ("dc7.producer.acks = all", "unknown-cluster", "add dc7 to clusters"),
        ("us-west->us.east.enabled = true", "unknown-cluster", "write us-east"),
        ("eu->us-east.topics = a", "unknown-cluster", "eu"),
        ("us-west->us-east.enable = true", "pair-key-spelling", "us-west->us-east.enabled = true"),
        ("us-west->us-east.Enabled = true", "pair-key-spelling", "us-west->us-east.enabled = true"),
        ("us-west -> us-east.enabled = true", "pair-key-spelling", "us-west->us-east.enabled"),
        ("us-west->us-east .topics = a", "pair-key-spelling", "us-west->us-east.topics"),
        ("us-west.us-east.enabled = true", "pair-key-spelling", "us-west->us-east.enabled"),
        ("us-west->us-east->enabled = true", "pair-key-spelling", "us-west->us-east.enabled"),
        ("us-west-->us-east.topics = a", "pair-key-spelling", "us-west->us-east.topics"),
        ("us-west=>us-east.topics = a", "pair-key-spelling", "us-west->us-east.topics"),
        ("us-west → us-east.topics = a", "pair-key-spelling", "us-west->us-east.topics"),
        ("us-west->us-west.enabled = true", "pair-key-spelling", "cannot mirror itself"),
        ("exactly.once.source.support = enabled", "eos-key-misplaced", "us-east.exactly.once.source.support = enabled"),
        ("us-west->us-east.exactly.once.source.support = enabled", "eos-key-misplaced", "us-east.exactly.once"),
    ],
)
def test_a_line_that_is_ignored(tmp_path: Path, line: str, rule: str, fix: str) -> None:
    found = told(tmp_path, f"{HEAD}{ENABLED}{line}\n")
    assert [(id_, hit.spot.line if hit.spot else 0) for id_, hit in found] == [(rule, 5)]
    assert fix in found[0][1].fix


@pytest.mark.parametrize(
    "line",
    [
        "consumer.poll.timeout.ms = 1000",
        "admin.timeout.ms = 1000",
        "topics = a",
        "bootstrap.servers = x:1",
        "security.protocol = SSL",
        "ssl.keystore.location = /x",
        "key.converter = org.apache.kafka.connect.converters.ByteArrayConverter",
        "worker.sync.timeout.ms = 1",
        "task.shutdown.graceful.timeout.ms = 1",
        "config.providers = file",
        "config.providers.file.class = x.Y",
        "replication.policy.own.key = 1",
        "us-east.exactly.once.source.support = enabled",
        "us-east.my.own.key = 1",
        "us-west->us-east.my.own.key = 1",
        "us-east->us-west.enabled = false",
        "us-west->us-east.emit.heartbeats.enabled = false",
    ],
)
def test_a_line_that_is_read(tmp_path: Path, line: str) -> None:
    assert told(tmp_path, f"{HEAD}{ENABLED}{line}\n") == []


@pytest.mark.parametrize(
    ("text", "message", "fix"),
    [
        (HEAD, "none of the pairs", "us-west->us-east.enabled = true"),
        (f"{HEAD}us-west->us-east.enabled = yes\n", "none of the pairs", "us-west->us-east.enabled = true"),
        (f"{HEAD}us-west->us-east.enabled = false\n", "none of the pairs", "us-west->us-east.enabled = true"),
        ("clusters = A\n", "fewer than two", "clusters = A, B"),
        ("A->B.enabled = true\n", "clusters is missing", "clusters = A, B"),
    ],
)
def test_no_flow_enabled(tmp_path: Path, text: str, message: str, fix: str) -> None:
    found = [hit for rule, hit in told(tmp_path, text) if rule == "no-flow-enabled"]
    assert len(found) == 1
    assert message in found[0].message
    assert fix in found[0].fix
    assert found[0].spot is not None
    assert found[0].spot.line == 1


@pytest.mark.parametrize(
    "line", ["us-west->us-east.enable = true", "us-west -> us-east.enabled = true", "a->b.enabled=true"]
)
def test_one_misspelt_switch_is_one_finding(tmp_path: Path, line: str) -> None:
    found = [rule for rule, _ in told(tmp_path, f"{HEAD}{line}\n")]
    assert found in (["pair-key-spelling"], ["unknown-cluster"])


def test_true_in_any_case_and_with_a_comment_is_on(tmp_path: Path) -> None:
    for value in ("True ", "TRUE", "true # on"):  # the comment is another rule's
        found = [rule for rule, _ in told(tmp_path, f"{HEAD}us-west->us-east.enabled = {value}\n")]
        assert found in ([], ["comment-in-value"])


def test_kafkas_own_file_is_fine(tmp_path: Path) -> None:
    assert told(tmp_path, KAFKAS_OWN) == []


def test_clusters_may_have_names_that_mean_something_elsewhere(tmp_path: Path) -> None:
    text = "clusters = source, target, us.west\nsource->target.enabled = true\nsource.bootstrap.servers = a:1\n"
    more = "source.consumer.max.poll.records = 5\nus.west.bootstrap.servers = w:1\nus.west->target.topic.filter = x\n"
    more += "us.west->target.enabled = false\n"
    assert told(tmp_path, text + more) == []


def test_other_files_are_not_looked_at(tmp_path: Path) -> None:
    assert told(tmp_path, "connector.class=MirrorSource\nname=n\nproducer.acks=1\n") == []


@pytest.mark.parametrize("rule", rules_of(dedicated_rules), ids=lambda rule: rule.id)
def test_every_rule_has_a_story(rule: object) -> None:
    first, _, rest = str(getattr(rule, "story", "")).partition("\n")
    assert first.endswith(".")
    assert len(rest.strip().splitlines()) >= 3


def test_one_line_sizes_all_three_connectors(tmp_path: Path) -> None:
    """tasks.max is meant for the records; that the heartbeats get it as well is no fault to mend."""
    found = lint(estate(tmp_path, HEAD + ENABLED + "us-west->us-east.tasks.max = 8\n"))
    assert "tasks-idle" not in {each.rule for each in found}


NODE = "clusters = harbor, delta\nharbor.bootstrap.servers = h:9092\ndelta.bootstrap.servers = d:9092\nharbor->delta.enabled = true\n"


@pytest.mark.parametrize(
    ("other", "shares"),
    [
        (NODE, False),  # another node of the same MirrorMaker
        (NODE.replace("h:9092", "r:9092"), True),
        (NODE.replace("d:9092", "e:9092").replace("h:9092", "r:9092"), False),
        (NODE.replace("harbor", "river").replace("h:9092", "r:9092"), False),
        (
            NODE.replace("h:9092", "r:9092") + "delta.group.id = own\n",
            True,
        ),  # its config topic is the other one's still
    ],
)
def test_two_files_share_workers_where_their_sources_are_two_clusters(
    tmp_path: Path, other: str, *, shares: bool
) -> None:
    files = [tmp_path / "one.properties", tmp_path / "two.properties"]
    for file, text in zip(files, (NODE, other), strict=True):
        file.write_text(text)
    found = [finding for finding in lint(read_files(files)) if finding.rule == "pairs-share-workers"]
    assert {finding.spot.file for finding in found} == ({str(file) for file in files} if shares else set())
    assert len(found) == (2 if shares else 0)
