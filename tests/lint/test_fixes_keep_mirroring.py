"""No fix that a machine applies changes what is mirrored, except where the fault itself kept the connector from mirroring anything."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.errors import Mm2mgrError
from mm2mgr.lint.findings import SEVERITIES, Finding
from mm2mgr.lint.fixing import Healed, heal
from mm2mgr.lint.reading import read_files
from mm2mgr.lint.rules import BY_ID, RULES, found
from mm2mgr.truth.keys import kafka_version
from mm2mgr.truth.reach import numbers
from tests.examples import draw_examples

from .kafkas_own import Config, configs, mirrored
from .test_corpus import FAULTY, TREE, VALID, Case

FILES = [
    case for case in FAULTY + VALID if case.texts() and not any(TREE.search(text) for text in case.texts().values())
]


def all_configs(contents: Mapping[str, bytes]) -> dict[tuple[str, ...], Config]:
    return {name: config for file, data in contents.items() for name, config in configs(file, data.decode()).items()}


def mend(case: Case, texts: Mapping[str, str]) -> tuple[dict[str, bytes], Healed, list[Finding]] | None:
    """Apply all fixes, hints too, and return what was found before; None where the files cannot be read."""
    with TemporaryDirectory() as folder:
        paths = {str(Path(folder) / name): text.encode() for name, text in texts.items()}
        for path, data in paths.items():
            Path(path).parent.mkdir(exist_ok=True)
            Path(path).write_bytes(data)
        read = [Path(path) for path in paths]
        try:
            findings = [finding for finding, _ in found(read_files(read, case.surroundings()), RULES)]
            return (
                paths,
                heal(paths, lambda now: read_files(read, case.surroundings(), now), severities=SEVERITIES),
                findings,
            )
        except Mm2mgrError:
            return None


def was_stopped(finding: Finding, name: tuple[str, ...]) -> bool:
    """Tell whether a fault kept a connector from mirroring anything."""
    hit = finding.hit
    if not BY_ID[finding.rule].stops or finding.severity != "error" or hit is None:
        return False
    return (hit.subject.name if hit.subject else "") in ("", name[1]) and finding.spot.file == name[0]


def check(case: Case, texts: Mapping[str, str]) -> None:
    result = mend(case, texts)
    if result is None:
        return
    before, healed, findings = result
    fixed = {finding.rule for finding in healed.fixed}
    stopped = [finding for finding in findings if finding.rule in fixed]
    if not healed.contents:
        return
    version = numbers(kafka_version(case.surroundings().version or case.surroundings().worker.version or "") or "99")
    old, new = all_configs(before), all_configs({**before, **healed.contents})
    fixes = "\n".join(f"{each.rule}: {each.message} | {each.fix}" for each in healed.fixed)
    for name in old.keys() | new.keys():
        if any(was_stopped(finding, name) for finding in stopped):
            continue
        assert name in old, f"{name} is new\n{fixes}"
        assert name in new, f"{name} is gone\n{fixes}"
        assert mirrored(old[name], version) == mirrored(new[name], version), fixes


@pytest.mark.parametrize("case", FILES, ids=lambda case: case.name)
def test_fixes_of_the_corpus_change_nothing_that_is_mirrored(case: Case) -> None:
    check(case, case.texts())


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


PLAIN = [case for case in FILES if all(name.endswith(".properties") for name in case.texts())]


@draw_examples(60)
@given(at=st.integers(0, len(PLAIN) - 1), seed=st.integers(0, 2**32))
def test_fixes_of_random_faults_change_nothing_that_is_mirrored(at: int, seed: int) -> None:
    case = PLAIN[at]
    check(case, {name: mutate(text, seed) for name, text in case.texts().items()})
