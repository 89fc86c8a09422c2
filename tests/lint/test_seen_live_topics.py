"""Faults of patterns, excludes, and of what is copied beside records, seen on a real worker: too few topics, or too many."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.lint.reading import read_files
from mm2mgr.lint.rules import lint
from mm2mgr.lint.subject import KafkaFacts
from tests.lint.lab import Lab
from tests.lint.made import CONVERTERS
from tests.live.seen import end_offset, topics, until, values, write_values

pytestmark = pytest.mark.live


def until_topics(lab: Lab, prefix: str, *wanted: str) -> None:
    """Wait until B has exactly these mirrored topics whose names on A begin with a prefix."""
    until(lambda: mirrored(lab, prefix), lambda found: found == set(wanted), f"topics {prefix}… of B")


def mirrored(lab: Lab, prefix: str) -> set[str]:
    return {name.removeprefix("A.") for name in topics(lab.target) if name.startswith(f"A.{prefix}")}


# --- which topics -----------------------------------------------------------------------------------------------------


def test_bad_pattern(lab: Lab) -> None:
    patterns = {"counted": "bad{1,2}", "bracket": "[", "star": "*", "open": "bad("}
    with lab.running({name: lab.flow(topic) for name, topic in patterns.items()}):
        for name in patterns:
            lab.until_failed(name, "PatternSyntaxException")
            assert lab.told(name) == {"bad-pattern"}


def test_glob_not_regex(lab: Lab) -> None:
    names = ("globs", "globs-eu")
    lab.create(*names)
    with lab.running({"globs": lab.flow("globs*")}):
        until_topics(lab, "globs", "globs")
        lab.until_state("globs", "RUNNING", "RUNNING")
        assert lab.told() == {"glob-not-regex"}
        lab.put("globs", lab.flow("globs.*"))
        until_topics(lab, "globs", *names)


def test_pattern_dot(lab: Lab) -> None:
    lab.create("dot.a", "dot-a", "dott.a", "dott-a")
    with lab.running({"dot": lab.flow("dot.a"), "fixed": lab.flow(r"dott\.a")}):
        until_topics(lab, "dot", "dot.a", "dot-a", "dott.a")
        real = KafkaFacts(brokers=1, partitions=topics(lab.source))
        assert lab.told("dot", source_kafka=real) == {"pattern-dot"}
        assert lab.told("fixed", source_kafka=real) == set()


def test_lost_backslash(lab: Lab, tmp_path: Path) -> None:
    r"""The file says `lost\.a`; what java.util.Properties, and so Connect, makes of it takes another topic as well."""
    lab.create("lost.a", "lost-a")
    config = lab.flow(r"lost\.a", {"name": "lost"})
    file = tmp_path / "lost.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    estate = read_files([file])
    parsed = {entry.key: entry.value for entry in estate.files[0].entries}
    with lab.running({"lost": parsed}):
        until_topics(lab, "lost", "lost.a", "lost-a")
        assert "lost-backslash" in {finding.rule for finding in lint(estate)}


def test_empty_topics(lab: Lab) -> None:
    lab.create("empty-t")
    flows = {"empty": lab.flow(""), "blank": lab.flow("  "), "nobody": lab.checkpoint("")}
    with lab.running(flows):
        for name in flows:
            lab.until_state(name, "RUNNING")
            assert lab.told(name) == {"empty-topics"}
        lab.put("empty", lab.flow("empty-t"))
        until_topics(lab, "empty", "empty-t")


def test_patterns_that_match_less_than_they_say(lab: Lab) -> None:
    """Connect takes them all; each is RUNNING, and mirrors what the expression matches as a whole."""
    lab.create("quoted", "semi", "colon", "pre.fix", "flag", "SPREAD", "brack")
    flows = {
        "quotes": lab.flow('"quoted.*"'),
        "semicolons": lab.flow("semi;colon"),
        "brackets": lab.flow("[brack, semi]"),
        "anchored": lab.flow("^pre"),
        "flags": lab.flow("(?i)FLAG,spread"),
    }
    with lab.running(flows):
        until_topics(lab, "flag", "flag")
        until_topics(lab, "SPREAD", "SPREAD")
        for name in ("quotes", "semicolons", "brackets", "anchored"):
            lab.until_state(name, "RUNNING")  # and no task
        for beginning in ("quoted", "semi", "colon", "brack", "pre"):
            assert mirrored(lab, beginning) == set()
        assert lab.told("quotes") == lab.told("semicolons") == lab.told("brackets") == {"pattern-matches-nothing"}
        assert lab.told("anchored") == {"pattern-exact"}
        assert lab.told("flags") == {"pattern-flag-spreads"}
        lab.put("quotes", lab.flow("quoted.*"))
        until_topics(lab, "quoted", "quoted")


def test_include_excluded(lab: Lab) -> None:
    lab.create("kept.a", "kept.replica")
    with lab.running({"kept": lab.flow(r"kept\.replica"), "beside": lab.flow(r"kept\.a")}):
        until_topics(lab, "kept", "kept.a")
        lab.until_state("kept", "RUNNING")
        assert lab.told("kept") == {"include-excluded"}
        lab.put("kept", lab.flow(r"kept\.replica", {"topics.exclude": r"mm2.*\.internal,__.*"}))
        until_topics(lab, "kept", "kept.a", "kept.replica")


def test_exclude_replaced(lab: Lab) -> None:
    settings = {"min.insync.replicas": "1", "message.timestamp.type": "LogAppendTime"}
    lab.create("own.replica", configs=settings)
    lab.create("stock", configs=settings)
    own = {"topics.exclude": "nothing", "config.properties.exclude": "nothing"}
    with lab.running({"own": lab.flow("own.*", own), "stock": lab.flow("stock,own.replica")}):
        until_topics(lab, "own", "own.replica")
        until_topics(lab, "stock", "stock")
        assert lab.configs("A.own.replica")["message.timestamp.type"] == "LogAppendTime"
        assert lab.configs("A.stock")["message.timestamp.type"] == "CreateTime"
        assert lab.told("own") == {"exclude-replaced"}


def test_catches_connect_topics(lab: Lab) -> None:
    """From the workers' own Kafka: their configs are copied to the other cluster."""
    with lab.running({"catches": lab.back("connect-.*")}):
        copied = until(lambda: values(lab.source, "B.connect-on-b-configs"), bool, "configs of the workers on A")
        assert any(b"MirrorSourceConnector" in (value or b"") for value in copied)
        assert lab.told() == {"catches-internal"}


def test_refresh_off(lab: Lab) -> None:
    lab.create("found-0", "seen-0")
    off = {"refresh.topics.enabled": "false"}
    with lab.running({"off": lab.flow("found-.*", off), "on": lab.flow("seen-.*")}):
        until_topics(lab, "found", "found-0")
        until_topics(lab, "seen", "seen-0")
        lab.create("found-1", "seen-1")
        until_topics(lab, "seen", "seen-0", "seen-1")
        assert mirrored(lab, "found") == {"found-0"}
        assert lab.told("off") == {"refresh-off"}
        lab.put("off", lab.flow("found-.*"))
        until_topics(lab, "found", "found-0", "found-1")


# --- what else is copied ----------------------------------------------------------------------------------------------


def test_sync_configs_off(lab: Lab) -> None:
    off, often = {"sync.topic.configs.enabled": "false"}, {"sync.topic.configs.interval.seconds": "1"}
    lab.create("frozen", "synced", configs={"retention.ms": "7200000"})
    with lab.running({"off": lab.flow("frozen", off), "on": lab.flow("synced", often)}):
        until(lambda: topics(lab.target), lambda found: {"A.frozen", "A.synced"} <= found.keys())
        for topic in ("frozen", "synced"):
            lab.alter(topic, "retention.ms", "10800000")
        until(lambda: lab.configs("A.synced")["retention.ms"], lambda value: value == "10800000")
        assert lab.configs("A.frozen")["retention.ms"] == "7200000"
        assert lab.told("off") == {"sync-configs-off"}


def test_sync_configs(lab: Lab) -> None:
    key, often = "use.defaults.from", {"sync.topic.configs.interval.seconds": "1"}
    lab.create("from-alias", "from-source", configs={"retention.ms": "7200000"})
    flows = {"alias": lab.flow("from-alias", {**often, key: "A"}), "source": lab.flow("from-source", {key: "source"})}
    with lab.running(flows):
        until(lambda: topics(lab.target), lambda found: {"A.from-alias", "A.from-source"} <= found.keys())
        until(
            lambda: lab.set_on("A.from-source"), lambda found: "max.compaction.lag.ms" in found, "defaults that are set"
        )
        assert lab.set_on("A.from-alias") == {"retention.ms"}
        assert lab.told("alias") == {"sync-configs"}


def test_replication_factor(lab: Lab) -> None:
    lab.create("replicas", partitions=2, configs={"retention.ms": "7200000"})
    write_values(lab.source, "replicas", b"1")
    unset = {"replication.factor": None, "refresh.topics.interval.seconds": "3600"}
    with lab.running({"replicas": lab.flow("replicas", unset)}):
        lab.until_logged("Could not create topic A.replicas")
        lab.until_values("A.replicas", b"1")
        assert topics(lab.target)["A.replicas"] == 1, "made by the broker, with one partition"
        assert lab.configs("A.replicas")["retention.ms"] != "7200000"
        assert lab.state("replicas") == ["RUNNING", "RUNNING"]
        assert lab.told() == {"replication-factor"}


def test_interval_zero(lab: Lab) -> None:
    lab.create("never-0", "often-0")
    key, beats = "refresh.topics.interval.seconds", {"emit.heartbeats.interval.seconds": "0"}
    connectors = {
        "zero": lab.flow("zero", {key: "0"}),
        "never": lab.flow("never-.*", {key: "-1"}),
        "often": lab.flow("often-.*"),
        "beating": lab.heartbeat(lab.b, beats),
    }
    with lab.running(connectors):
        lab.until_failed("zero", "IllegalArgumentException")
        until_topics(lab, "never", "never-0")
        until_topics(lab, "often", "often-0")
        lab.create("never-1", "often-1")
        until_topics(lab, "often", "often-0", "often-1")
        assert mirrored(lab, "never") == {"never-0"}
        until(lambda: end_offset(lab.target, "heartbeats"), lambda beats: beats > 1000, "beats without a pause")
        faulty = ("zero", "never", "beating")
        assert {name: lab.told(name) for name in faulty} == {name: {"interval-zero"} for name in faulty}


def test_alias_with_separator(lab: Lab) -> None:
    """A topic under such an alias is made, and never recognised again: its settings stay as they were."""
    lab.create("parted", configs={"retention.ms": "7200000"})
    often = {"sync.topic.configs.interval.seconds": "1"}
    aliases = {"dotted": "us.west", "hyphened": "us-west"}
    flows = {
        name: lab.flow("parted", {**often, "source.cluster.alias": alias, **CONVERTERS})
        for name, alias in aliases.items()
    }
    with lab.running(flows):
        wanted = {"us.west.parted", "us-west.parted"}
        until(lambda: topics(lab.target), lambda found: wanted <= found.keys())
        lab.alter("parted", "retention.ms", "10800000")
        until(lambda: lab.configs("us-west.parted")["retention.ms"], lambda value: value == "10800000")
        assert lab.configs("us.west.parted")["retention.ms"] == "7200000"
        assert lab.told("dotted") == {"alias-has-separator"}
        assert lab.told("hyphened") == set()
