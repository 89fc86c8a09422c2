"""Faults that several connectors make together, seen on a real worker: loops, copies, beats and checkpoints that never come."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from tests.lint.lab import IDENTITY, Lab
from tests.live.seen import commit, delete, end_offset, messages, topics, until, values, write_values

pytestmark = pytest.mark.live
SYNCS = {"emit.offset-syncs.enabled": None, "offset-syncs.topic.replication.factor": "1"}
BEATING = {"heartbeats.replication.enabled": None}


# --- loops ------------------------------------------------------------------------------------------------------------


def named(lab: Lab, part: str) -> set[str]:
    return {name for name in topics(lab.target) if part in name}


def test_loop_by_alias(lab: Lab) -> None:
    """Each level of names is a full copy; the healthy pair beside them stays at one."""
    lab.create("other-alias", "no-alias", "right-alias")
    others, none = {"source.cluster.alias": "B2", "target.cluster.alias": "A2"}, {"target.cluster.alias": None}
    pairs = {
        "other": (lab.flow(".*other-alias"), lab.back(".*other-alias", others)),
        "no": (lab.flow(".*no-alias", none), lab.back(".*no-alias", none)),
        "right": (lab.flow(".*right-alias"), lab.back(".*right-alias")),
    }
    connectors = {f"{name}{number}": config for name, both in pairs.items() for number, config in enumerate(both)}
    with lab.running(connectors):
        for name in ("other", "no"):
            until(partial(named, lab, f"{name}-alias"), lambda found: len(found) > 2, "levels of names")
            for connector in (f"{name}0", f"{name}1"):  # a task starts anew with each level
                lab.until_state(connector, "RUNNING", "RUNNING")
        assert named(lab, "right-alias") == {"A.right-alias"}
        told = {name: lab.told(f"{name}0", f"{name}1") for name in pairs}
    assert told == {"other": {"loop"}, "no": {"loop", "target-alias-missing"}, "right": set()}


def test_separator_differs(lab: Lab) -> None:
    """A_marks is a plain name for the way back, so it is mirrored where it came from."""
    mark = {"replication.policy.separator": "_"}
    lab.create("marks", "beside")
    connectors = {
        "there": lab.flow(".*marks", mark),
        "back": lab.back(".*marks"),
        "beside": lab.flow("beside"),
    }
    with lab.running(connectors):
        until(lambda: topics(lab.source), lambda found: "B.A_marks" in found, "a topic that came back")
        assert lab.told("there", "back") == {"loop"}
        assert lab.told("there", "beside") == {"separator-differs"}


def test_cluster_two_aliases(lab: Lab) -> None:
    """B writes as B2 and is written to as B: its own topic comes back to it."""
    lab.create("echo", on=lab.target)
    write_values(lab.target, "echo", b"1")
    connectors = {"out": lab.back("echo", {"source.cluster.alias": "B2"}), "in": lab.flow(".*echo")}
    with lab.running(connectors):
        lab.until_values("A.B2.echo", b"1")
        assert lab.told() == {"loop"}
        healthy = [lab.told_of(config) for config in connectors.values()]
        assert healthy == [set(), set()]


def test_identity_loop(lab: Lab) -> None:
    lab.create_with("round", *[b"1"] * 20)
    with lab.running({"there": lab.flow("round", IDENTITY), "back": lab.back("round", IDENTITY)}):
        until(lambda: end_offset(lab.source, "round"), lambda end: end > 500, "20 records that go round")
        assert lab.state("there") == lab.state("back") == ["RUNNING", "RUNNING"]
        assert lab.told() == {"identity-loop"}


def test_self_mirror(lab: Lab) -> None:
    lab.create("self")
    itself = {"target.cluster.alias": "A2", "target.cluster.bootstrap.servers": lab.a.bootstrap_servers}
    with lab.running({"self": lab.flow(".*self", itself)}, lab.on_a):
        until(lambda: topics(lab.source), lambda found: "A.A.A.self" in found, "copies of copies")
        assert "self-mirror" in lab.told(worker=lab.on_a)
        assert lab.told(worker=lab.on_a) <= {"self-mirror", "cluster-two-aliases"}


# --- one pair ---------------------------------------------------------------------------------------------------------


def test_overlap(lab: Lab) -> None:
    lab.create_with("twice", b"1")
    with lab.running({"first": lab.flow("twice"), "second": lab.flow("twic.*")}):
        lab.until_values("A.twice", b"1", b"1")
        assert lab.told() == {"overlap"}
        lab.put("second", lab.flow("twic.*", {"topics.exclude": r"twice,mm2.*\.internal,.*\.replica,__.*"}))
        assert lab.told() == set()


def test_topics_renamed(lab: Lab) -> None:
    lab.create_with("again", b"1")
    with lab.running({"old": lab.flow("again")}):
        until(lambda: lab.offsets("old"), lambda found: found == [0])
        lab.stop("old")
        with lab.running({"new": lab.flow("again")}):
            lab.until_values("A.again", b"1", b"1")
            assert lab.told() == {"renamed"}


def test_heartbeats(lab: Lab) -> None:
    """Beats written into the target cross nothing; those written into the source arrive once for each connector."""
    if "heartbeats" in topics(lab.source):
        delete(lab.source, ["heartbeats"])
    lab.create("beaten-0", "beaten-1")
    connectors = {"beats": lab.heartbeat(lab.b), "beaten": lab.flow("beaten-0", BEATING)}
    with lab.running(connectors):
        until(lambda: topics(lab.target), lambda found: {"heartbeats", "A.beaten-0"} <= found.keys())
        assert "A.heartbeats" not in topics(lab.target)
        assert "heartbeats" not in topics(lab.source)
        assert lab.told() == {"heartbeats-never-cross"}
        lab.put("beats", lab.heartbeat(lab.a))
        until(lambda: values(lab.target, "A.heartbeats"), bool, "beats that crossed")
        assert lab.told() == set()
        with lab.running({"second": lab.flow("beaten-1", BEATING)}):
            until(lambda: copies(lab), lambda most: most == 2, "a beat that arrived twice")
            assert lab.told() == {"heartbeats-twice"}


def copies(lab: Lab) -> int:
    beats = Counter((beat.key, beat.value) for beat in messages(lab.target, "A.heartbeats"))
    return max(beats.values())


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_checkpoint_refused(lab: Lab) -> None:
    faults = {
        "syncs": (lab.checkpoint("g", {"emit.offset-syncs.enabled": "false"}), "checkpoint-without-syncs"),
        "checkpoints": (lab.checkpoint("g", {"emit.checkpoints.enabled": "false"}), "checkpoint-without-syncs"),
        "source": (lab.flow("t", {"offset-syncs.topic.replication.factor": "1"}), "syncs-with-off"),
    }
    for name, (config, rule) in faults.items():
        assert lab.refusal(name, config).startswith("400"), name
        assert lab.told_of(config) == {rule}


def test_checkpoints_that_never_come(lab: Lab) -> None:
    """Four pairs with a group each: one is right, the others stay without a checkpoint until they are put right."""
    names = ("right", "without", "apart", "others")
    for name in names:
        lab.create_with(f"group-{name}", b"1", b"2", b"3")
        commit(lab.source, name, f"group-{name}", 2)
    wrong: dict[str, dict[str, str | None]] = {
        "without": {"emit.offset-syncs.enabled": "false", "offset-syncs.topic.replication.factor": None},
        "apart": {"offset-syncs.topic.location": "target"},
        "others": {"topics": "A.group-others"},
    }
    # Each pair has its own target alias, and so its own offset syncs.
    aliases: dict[str, dict[str, str | None]] = {name: {"target.cluster.alias": f"B-{name}"} for name in names}
    flows = {name: lab.flow(f"group-{name}", {**SYNCS, **aliases[name]}) for name in names}
    flows["without"] = lab.flow("group-without", {**aliases["without"], **wrong["without"]})
    checks = {f"{name}-check": lab.checkpoint(name, aliases[name]) for name in names}
    for name in ("apart", "others"):
        checks[f"{name}-check"] = lab.checkpoint(name, {**aliases[name], **wrong[name]})
    with lab.running(flows):
        for name in names:
            lab.until_values(f"A.group-{name}", b"1", b"2", b"3")
        with lab.running(checks):
            until(lambda: checked(lab), bool, "a checkpoint of the right pair")
            told = {name: lab.told(name, f"{name}-check") for name in names}
            assert told == {
                "right": set(),
                "without": {"checkpoint-without-syncs"},
                "apart": {"pair-disagrees"},
                "others": {"checkpoint-other-topics"},
            }
            for name in ("apart", "others"):
                lab.put(f"{name}-check", lab.checkpoint(name, aliases[name]))
            until(lambda: checked(lab), lambda found: len(found) > 2, "checkpoints of those that were put right")
            assert checked(lab) == {"right", "apart", "others"}


def checked(lab: Lab) -> set[str]:
    """Return the groups that have a checkpoint on B."""
    keys = [record.key or b"" for record in messages(lab.target, "A.checkpoints.internal")]
    return {name for name in ("right", "without", "apart", "others") if any(name.encode() in key for key in keys)}
