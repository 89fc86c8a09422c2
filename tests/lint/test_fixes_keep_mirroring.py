"""No fix that a machine applies changes what is mirrored, except where the fault itself kept the connector from mirroring anything."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.errors import Mm2mgrError, SpecError
from mm2mgr.formats import properties
from mm2mgr.lint.findings import SEVERITIES, Finding, Rule
from mm2mgr.lint.fixing import Healed, heal
from mm2mgr.lint.reading import read_files
from mm2mgr.lint.rules import BY_ID, RULES, find
from mm2mgr.truth.keys import kafka_version
from mm2mgr.truth.reach import numbers
from tests.examples import draw_examples, sampled

from .kafkas_own import Config, configs, mirrored
from .test_corpus import FAULTY, TREE, VALID, Case, sample_of
from .test_heal import files_of, read

FILES = [
    case for case in FAULTY + VALID if case.texts() and not any(TREE.search(text) for text in case.texts().values())
]


def all_configs(contents: Mapping[str, bytes]) -> dict[tuple[str, ...], Config]:
    return {name: config for file, data in contents.items() for name, config in configs(file, data.decode()).items()}


def mend(
    case: Case, texts: Mapping[str, str], rules: Sequence[Rule] = RULES
) -> tuple[dict[str, bytes], Healed, list[Finding]] | None:
    """Apply all fixes of these rules, hints too, and return what was found before; None where the files cannot be read."""
    with TemporaryDirectory() as folder:
        paths = {str(Path(folder) / name): text.encode() for name, text in texts.items()}
        for path, data in paths.items():
            Path(path).parent.mkdir(exist_ok=True)
            Path(path).write_bytes(data)
        files = [Path(path) for path in paths]
        try:
            findings = [finding for finding, _ in find(read_files(files, case.surroundings()), RULES)]
            return (
                paths,
                heal(paths, lambda now: read_files(files, case.surroundings(), now), rules, SEVERITIES),
                findings,
            )
        except Mm2mgrError:
            return None


def was_stopped(finding: Finding, name: tuple[str, ...]) -> bool:
    """Tell whether a fault kept a connector from mirroring anything."""
    hit = finding.hit
    if not BY_ID[finding.rule].stops or finding.severity != "error" or hit is None or hit.mirrors:
        return False
    return not name[1] or ((hit.subject.name if hit.subject else "") in ("", name[1]) and finding.spot.file == name[0])


def compare(old: dict[str, object], new: dict[str, object], fixed: Sequence[Finding]) -> None:
    """A connector does the same as before; only one that took no topic, by an error in its list, may take some."""
    if not old.get("topics") and any(each.severity == "error" and each.key.endswith(TAKING) for each in fixed):
        old, new = ({key: value for key, value in each.items() if key != "topics"} for each in (old, new))
    assert old == new, "\n".join(f"{each.rule}: {each.message} | {each.fix}" for each in fixed)


TAKING = ("topics", "topicsPattern")


def check(case: Case, texts: Mapping[str, str], rules: Sequence[Rule] = RULES) -> None:
    result = mend(case, texts, rules)
    if result is None:
        return
    before, healed, findings = result
    fixed = {finding.rule for finding in healed.fixed}
    stopped = [finding for finding in findings if finding.rule in fixed]
    if not healed.contents:
        return
    known = case.surroundings()
    written = re.search(r"^\s*version: ['\"]?([\d.]+)", "\n".join(texts.values()), re.MULTILINE)
    version = numbers(kafka_version(known.version or known.worker.version or (written[1] if written else "")) or "99")
    old, new = all_configs(before), all_configs({**before, **healed.contents})
    fixes = "\n".join(f"{each.rule}: {each.message} | {each.fix}" for each in healed.fixed)
    for name in old.keys() | new.keys():
        if any(was_stopped(finding, name) for finding in stopped):
            continue
        assert name in old, f"{name} is new\n{fixes}"
        assert name in new, f"{name} is gone\n{fixes}"
        compare(mirrored(old[name], version), mirrored(new[name], version), healed.fixed)


@sampled("case", sample_of(FILES), FILES, ids=lambda case: case.name)
def test_fixes_of_the_corpus_change_nothing_that_is_mirrored(case: Case) -> None:
    check(case, case.texts())


@pytest.mark.matrix
@pytest.mark.parametrize("case", FILES, ids=lambda case: case.name)
def test_the_fixes_of_each_rule_alone_and_of_two_change_nothing_that_is_mirrored(case: Case) -> None:
    """And comments stay, and to fix again changes nothing."""
    result = mend(case, case.texts())
    ids = {finding.rule for finding in result[2] if finding.hit and finding.hit.edits} if result else set()
    chosen = [BY_ID[each] for each in sorted(ids)]
    pairs = combinations(chosen, 2) if len(chosen) < 5 else ()
    for rules in [(rule,) for rule in chosen] + list(pairs):
        check(case, case.texts(), rules)
    if result and result[1].contents:
        before, healed, _ = result
        after = {Path(path).name: data.decode() for path, data in {**before, **healed.contents}.items()}
        for path, data in before.items():
            comments = [line.strip() for line in data.decode().split("\n") if line.lstrip().startswith("#")]
            assert all(comment in after[Path(path).name] for comment in comments), path
        again = mend(case, after)
        assert again
        assert not again[1].contents, [finding.fix for finding in again[1].fixed]


SNIPPETS = (
    *(
        "topics=orders",
        "topic=orders",
        "topics.exclude=debug-.*",
        "topics.whitelist=orders",
        "topicsPattern=orders.*",
        "topics=",
        "topics=orders*",
    ),
    *(
        "enabled=false",
        "replication.policy.separator=-",
        "replication.policy.separator=",
        "replication.policy.seperator=_",
    ),
    *(
        "replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "source.cluster.alias=C",
        "target.cluster.alias=A",
    ),
    *(
        "target.cluster.alias=",
        "source.cluster.alais=C",
        "consumer.auto.offset.reset=latest",
        "auto.offset.reset=latest",
        "group.id=x",
    ),
    *(
        "source.consumer.isolation.level=read_committed",
        "offset-syncs.topic.location=target",
        "offset-syncs.topic.locaton=target",
    ),
    *(
        "emit.checkpoints.enabled=false",
        "emit.offset-syncs.enabled=false",
        "sync.group.offsets.enabled=true",
        "groups=shop",
        "groups=",
    ),
    *(
        "source.cluster.producer.sasl.jaas.config=${file:/c/a:jaas}",
        "producer.override.bootstrap.servers=a1:9092",
        "sasl.mechanism=PLAIN",
    ),
    *(
        "source.cluster.security.protocol=SSL",
        "security.protocol=SSL",
        "producer.security.protocol=SASL_SSL",
        "transforms=x",
        "state=stopped",
    ),
    *(
        "transforms.x.type=org.apache.kafka.connect.transforms.InsertHeader",
        "transforms.x.type=org.apache.kafka.connect.transforms.RegexRouter",
    ),
    *(
        "offset-syncs.topic.retention.ms=604800000",
        "replication.policy.source.prefix=x",
        "tasks.max=4",
        "consumer.override.max.poll.records=9",
    ),
    *(
        "topics.blacklist=orders",
        "topics=payments\\.orders",
        "topics=orders # all",
        "heartbeats.replication.enabled=false",
    ),
)


def mutate(text: str, seed: int) -> str:
    """Change one or two lines: a slip in a key, another value, a line gone, twice, or new."""
    draw = random.Random(seed)
    lines = text.split("\n")
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(lines))
        line, new = lines[at], draw.choice(SNIPPETS)
        prefix = draw.choice(
            ["", "", "", "A.", "B.", "A->B.", "B->A.", "source.", "target.cluster.", "producer.override."]
        )
        kind = draw.randrange(6)
        if kind == 0 and "=" in line:
            key, _, value = line.partition("=")
            cut = draw.randrange(max(1, len(key) - 1))
            lines[at] = f"{key[:cut]}{key[cut + 1 : cut + 2]}{key[cut : cut + 1]}{key[cut + 2 :]}={value}"
        elif kind == 1 and "=" in line:
            key, _, value = line.partition("=")
            cut = draw.randrange(max(1, len(key)))
            lines[at] = f"{key[:cut]}{key[cut + 1 :]}={value}"
        elif kind == 2 and "=" in line:
            lines[at] = (
                f"{line.partition('=')[0]}={draw.choice(['', ' ', '*', 'x', 'true', 'orders', 'A', 'B', 'a1:9092', '-1'])}"
            )
        elif kind == 3 and len(lines) > 1:
            del lines[at]
        else:
            lines.insert(at, f"{prefix}{new}")
    return "\n".join(lines)


def mutate_yaml(text: str, seed: int) -> str:
    """Change one to three lines of a resource: a slip in a key, another value, a line gone, or a new setting beside it."""
    draw = random.Random(seed)
    lines = text.split("\n")
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(lines))
        found = re.fullmatch(r"(\s*(?:- )?)([\w.-]+): ([^{}\[\]]+)", lines[at])
        kind = draw.randrange(5)
        if not found:
            continue
        indent, key, value = found.groups()
        cut = draw.randrange(len(key))
        if kind == 0:
            lines[at] = f"{indent}{key[:cut]}{key[cut + 1 :] or 'x'}: {value}"
        elif kind == 1:
            lines[at] = f"{indent}{key[:cut]}{key[cut + 1 : cut + 2]}{key[cut : cut + 1]}{key[cut + 2 :]}: {value}"
        elif kind == 2:
            lines[at] = f"{indent}{key}: {draw.choice(['x', 'true', 'orders', 'a', 'b', chr(34) * 2, '4'])}"
        elif kind == 3:
            del lines[at]
        else:
            new, _, value = draw.choice([each for each in SNIPPETS if "#" not in each]).partition("=")
            lines.insert(at + 1, f"{' ' * len(indent)}{new}: {json.dumps(value)}")
    return "\n".join(lines)


def as_array(texts: Mapping[str, str]) -> dict[str, str]:
    """Return connectors of properties files as one JSON array, a key of each on its own line."""
    every = [properties.last(properties.read(text, name)) for name, text in texts.items()]
    return {"all.json": json.dumps([{key: entry.value for key, entry in each.items()} for each in every], indent=1)}


PLAIN = [case for case in FILES if all(name.endswith(".properties") for name in case.texts())]
CONNECTORS = [case for case in PLAIN if all("connector.class" in text for text in case.texts().values())]
RESOURCES = [case for case in FILES if all(name.endswith((".yaml", ".yml")) for name in case.texts())]


@draw_examples(20, many=600)
@given(at=st.integers(0, len(PLAIN) - 1), seed=st.integers(0, 2**32))
def test_fixes_of_random_faults_change_nothing_that_is_mirrored(at: int, seed: int) -> None:
    case = PLAIN[at]
    check(case, {name: mutate(text, seed) for name, text in case.texts().items()})


@draw_examples(15, many=300)
@given(at=st.integers(0, len(CONNECTORS) - 1), seed=st.integers(0, 2**32))
def test_fixes_of_random_faults_in_json_change_nothing_that_is_mirrored(at: int, seed: int) -> None:
    case = CONNECTORS[at]
    try:
        check(case, as_array({name: mutate(text, seed) for name, text in case.texts().items()}))
    except SpecError:
        return  # what Java cannot read


@draw_examples(15, many=400)
@given(at=st.integers(0, len(RESOURCES) - 1), seed=st.integers(0, 2**32))
def test_fixes_of_random_faults_in_resources_change_nothing_that_is_mirrored(at: int, seed: int) -> None:
    case = RESOURCES[at]
    check(case, {name: mutate_yaml(text, seed) for name, text in case.texts().items()})


TREES = [case for case in FAULTY if case.texts() and all(TREE.search(text) for text in case.texts().values())]


@pytest.mark.parametrize("case", TREES, ids=lambda case: case.name)
def test_fixes_of_trees_change_nothing_that_is_mirrored(case: Case, tmp_path: Path) -> None:
    paths = files_of(case, tmp_path)
    contents = {str(path): path.read_bytes() for path in paths}

    def rendered(now: Mapping[str, bytes]) -> dict[str, dict[str, object]]:
        estate = read(case, paths, now)
        return {each.name: mirrored(dict(each.config), numbers(each.version)) for each in estate.subjects}

    try:
        healed = heal(contents, lambda now: read(case, paths, now), severities=SEVERITIES)
    except SpecError:
        return
    before, after = rendered(contents), rendered({**contents, **healed.contents})
    assert before.keys() == after.keys()
    for name, old in before.items():
        compare(old, after[name], healed.fixed)
