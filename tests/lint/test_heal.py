"""Every fix of the corpus, applied by machine to the files of its case and linted again: the finding is gone, and nothing as severe is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from mm2mgr.errors import SpecError
from mm2mgr.expand import expand
from mm2mgr.lint.findings import SEVERITIES, Finding
from mm2mgr.lint.fixing import Healed, heal
from mm2mgr.lint.reading import read_files
from mm2mgr.lint.rules import RULES, find, lint
from mm2mgr.lint.subject import Estate
from mm2mgr.lint.tree import from_tree
from mm2mgr.render import render
from mm2mgr.spec.files import load
from tests.examples import sampled

from .test_corpus import FAULTY, TREE, Case, sample_of

BY_HAND = {
    "addresses-of-two-clusters": "whose address it is",
    "alias-blank": "the alias; topics of a flow that runs get other names, or begin again",
    "alias-reused": "which cluster keeps the alias; the other one's topics get another name",
    "bad-address": "the port or the host, where it is missing",
    "bad-pattern": "what the expression means",
    "bare-security": "which cluster the login is for: it must not go to the other one",
    "class-refused": "which class is meant, or none",
    "broker-window": "a setting of the brokers",
    "checkpoints-twice": "which connector has which groups",
    "compression-level-idle": "whether compression is wanted",
    "dead-key": "an address without which nothing was mirrored",
    "empty-topics": "the names: all of the source is more than somebody asked for",
    "exactly-once-worker": "a setting of the workers",
    "fan-in": "which topics are mirrored; another policy names all of them anew",
    "filter-drops-all": "what is to be dropped",
    "heartbeats-excluded": "whether heartbeats are wanted",
    "heartbeats-never-cross": "in a Strimzi resource the clusters are those of the mirror",
    "heartbeats-not-carried": "whether heartbeats are wanted",
    "heartbeats-off": "whether the connector is wanted",
    "heartbeats-twice": "a newer Kafka, before 4.0",
    "identity-loop": "which topics are mirrored in which direction",
    "include-excluded": "what to mirror instead, where the list has nothing else",
    "internal-rest-too-new": "a newer Kafka",
    "invalid-value": "the value",
    "jaas-module": "the user's name",
    "jaas-syntax": "the user's name",
    "jmx-reporter-missing": "a setting of the workers",
    "kafka-unknown": "a newer Kafka",
    "plugin-settings": "what the transformation is to do",
    "refused-by-code": "which of two settings is meant, and logins",
    "known-bug": "a newer Kafka",
    "worker-value": "a setting of the workers",
    "limit-above-link": "how much is wanted",
    "limit-below-traffic": "how much is wanted",
    "link-memory": "smaller fetches or more memory",
    "link-placement": "where workers run",
    "link-unused": "which clusters are meant",
    "login-of-other-side": "which of two connectors is wrong",
    "login-unencrypted": "the brokers or the REST API need TLS first",
    "minor-bugs": "a newer Kafka",
    "missing-required": "the value",
    "name-too-long": "which topic is left out, or a shorter alias",
    "no-heartbeats": "a new connector",
    "operator-ignores": "the members of the resource, and labels of others",
    "overlap": "which connector keeps the topic",
    "overlap-undecided": "what the expression means",
    "pair-not-enabled": "whether the pair is to mirror",
    "pairs-share-workers": "offsets that stay in the old topic",
    "pattern-exact": "whether a name or its beginning is meant",
    "pattern-flag-spreads": "what the flag is for",
    "pattern-matches-nothing": "what is called like this, or what is to be excluded",
    "placeholder-unfilled": "whether a tool fills it in before",
    "plugin-missing": "jars of the workers",
    "policy-class": "a newer Kafka, before 3.0",
    "policy-forbids": "a setting of the workers",
    "provider-unknown": "a setting of the workers",
    "record-refused": "a setting of the target's topics",
    "renamed": "offsets to copy",
    "replication-factor": "a setting of the workers, for their own topics",
    "request-above-target": "a setting of the target's topics",
    "resources-share-workers": "names of topics and of a group",
    "same-name": "Strimzi's operator names connectors, by their aliases",
    "secret-in-clear": "a file on the workers",
    "secret-in-tree": "a place for the secret",
    "security-incomplete": "the mechanism, or what the brokers speak",
    "self-mirror": "the address",
    "silence-unexplained": "the reason",
    "target-alias-missing": "the alias that other flows use",
    "transform-incomplete": "the class, or what the predicate is",
    "top-level-ignored": "which of the keys that the driver passes on is meant",
    "transform-unlisted": "whether it is to run",
    "two-ways": "which path keeps the topic",
    "unknown-cluster": "which cluster is meant",
    "unknown-key": "which topics are meant",
    "unscoped-address": "which cluster the login is for",
    "upgrade-deprecated": "what comes with the newer Kafka",
    "upgrade-metric-names": "dashboards",
    "upgrade-override-policy": "a setting of the workers",
    "worker-key": "a setting of the workers",
    "worker-keystore-clash": "a setting of the workers",
    "wrong-kafka": "whether it is a listener of the target",
}
"""Rules with hits that no machine fixes (a new one of these gets a line), and what it does not know or cannot reach. Of these the case's `fixed` is the proof."""
CHANGES = "to be done by hand, as it changes what is mirrored: "
CHANGING = {
    *(
        "address-scheme",
        "bad-address",
        "alias-has-separator",
        "catches-internal",
        "checkpoint-other-topics",
        "checkpoint-without-syncs",
    ),
    *("class-refused", "cluster-two-aliases", "comment-in-value", "dead-key", "dead-override", "enabled-false"),
    *("exactly-once-overrides", "exclude-replaced", "forced-key", "glob-not-regex", "group-offsets-off"),
    *(
        "heartbeats-never-cross",
        "heartbeats-twice",
        "host-name-unchecked",
        "key-deprecated",
        "key-removed",
        "login-of-other-side",
    ),
    *("loop", "lost-backslash", "name-not-for-topics", "other-tools-key", "pair-disagrees"),
    *(
        "invalid-value",
        "pattern-dot",
        "pattern-matches-nothing",
        "refused-by-code",
        "reset-latest",
        "reset-none",
        "same-name",
    ),
    "separator-differs",
    *("top-level-ignored", "transform-needs-fields", "transform-renames", "unknown-key", "unscoped-address"),
    "transform-incomplete",
    "worker-key",
    "wrong-kafka",
}
"""Rules whose fix would mirror other topics, under other names, from or to other clusters, with other state or logins."""
GIVEN_UP = {
    "links-fetch-small-over-a-link": ["fetch-small"],
    "logins-oauth-module-for-plain": ["jaas-module"],
    "public_more-sync-noise": ["unknown-key"],
    "public_more-local-and-remote": ["loop"],
    "wild-tuned-at-the-top": ["top-level-client"],
    "within-mm2-properties-in-a-configmap": ["unknown-key"],
    "within-quotes-and-template-in-a-configmap": ["pattern-matches-nothing"],
    "within-connector-in-a-configmap": ["pattern-matches-nothing"],
    "within-compose-with-inline-config": ["unknown-key"],
}
"""Cases where a fix is not made, because another finding would follow, the place is not the connector's own, or is a text in a file."""


@cache
def case_of(name: str) -> Case:
    [found] = [case for case in FAULTY if case.name == name]
    return found


def read(case: Case, paths: list[Path], contents: Mapping[str, bytes]) -> Estate:
    if all(TREE.search(path.read_text(encoding="utf-8")) for path in paths):
        spec = load(paths, contents)
        topology = expand(spec)
        return from_tree(topology, render(topology), spec, contents)
    return read_files(paths, case.surroundings(), contents)


def files_of(case: Case, folder: Path) -> list[Path]:
    paths = []
    for name, text in case.texts().items():
        paths.append(folder / name)
        paths[-1].parent.mkdir(exist_ok=True)
        paths[-1].write_text(text, encoding="utf-8")
    return paths


def healed(case: Case, paths: list[Path]) -> Healed:
    contents = {str(path): path.read_bytes() for path in paths}
    return heal(contents, lambda changed: read(case, paths, changed))


def counts(case: Case, finding: Finding) -> bool:
    return finding.severity != "info" or finding.rule in {expect["rule"] for expect in case.expected}


FILES = [case for case in FAULTY if "tree" not in case.data and case.name != "dedicated-tree-without-topics"]


@sampled(
    "name", dict.fromkeys([*(case.name for case in sample_of(FILES, 1)), *GIVEN_UP]), [case.name for case in FILES]
)
def test_a_machine_heals(name: str, tmp_path: Path) -> None:
    """What it leaves is said to be left, with the reason; what it writes, people's parsers read, and lint finds less."""
    case = case_of(name)
    paths = files_of(case, tmp_path)
    before = lint(read(case, paths, {}))
    result = healed(case, paths)
    for file, data in result.contents.items():
        Path(file).write_bytes(data)
    after = lint(read(case, paths, {}))
    left = {finding.rule: why for finding, why in result.left if counts(case, finding)}
    assert {rule for rule, why in left.items() if not why} <= BY_HAND.keys()
    assert {rule for rule, why in left.items() if why.startswith(CHANGES)} <= CHANGING
    assert {rule for rule, why in left.items() if why and not why.startswith(CHANGES)} <= set(GIVEN_UP.get(name, ()))
    assert {each.rule for each in after if counts(case, each)} == left.keys()
    for severity in SEVERITIES[:2]:
        old, new = (Counter(each.rule for each in some if each.severity == severity) for some in (before, after))
        del new["secret-in-clear"]  # under its right name a secret that was there is noticed
        assert new <= old, result.fixed


def test_the_lists_of_exceptions_hold_nothing_else(tmp_path_factory: pytest.TempPathFactory) -> None:
    hands = set[str]()
    for case in FILES:
        every = find(read(case, files_of(case, tmp_path_factory.mktemp("case")), {}), RULES)
        hands |= {finding.rule for finding, hit in every if not hit.edits and counts(case, finding)}
    assert hands == BY_HAND.keys()
    assert GIVEN_UP.keys() <= {case.name for case in FILES}


def test_a_tree_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    case = case_of("dedicated-tree-without-topics")
    with pytest.raises(SpecError):
        healed(case, files_of(case, tmp_path))


def test_a_login_that_may_be_for_either_cluster_stays_where_it_is(tmp_path: Path) -> None:
    """Of the three connectors of a pair one knows only the target; the line is for all of them."""
    path = tmp_path / "mm2.properties"
    lines = ["clusters=A,B", "A.bootstrap.servers=a1:9092", "B.bootstrap.servers=b1:9092", "A->B.enabled=true"]
    path.write_text("\n".join([*lines, "A->B.sasl.jaas.config=${file:/p:jaas}", ""]), encoding="utf-8")
    result = heal({str(path): path.read_bytes()}, lambda changed: read_files([path], contents=changed))
    assert all(b"A->B.sasl.jaas.config=${file:/p:jaas}" in data for data in result.contents.values())
    assert "bare-security" in {finding.rule for finding, _ in result.left}


def test_no_fix_gives_the_records_the_address_of_the_source(tmp_path: Path) -> None:
    """KAFKA-9313: the address behind `producer.` was moved to the record producer, whoever's it was."""
    path = tmp_path / "orders.properties"
    lines = ["name=orders", "connector.class=MirrorSourceConnector", "source.cluster.alias=A", "topics=orders"]
    lines += ["source.cluster.bootstrap.servers=a1:9092", "target.cluster.bootstrap.servers=b1:9092"]
    lines += [
        "target.cluster.alias=B",
        "producer.bootstrap.servers=a1:9092",
        "target.producer.bootstrap.servers=a1:9092",
    ]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    result = heal({str(path): path.read_bytes()}, lambda changed: read_files([path], contents=changed))
    [text] = result.contents.values()
    assert b"producer.override.bootstrap.servers=a1" not in text
    assert b"producer.bootstrap.servers" not in text
    assert "override.bootstrap.servers=a1" not in "".join(finding.fix for finding, _ in result.left)
