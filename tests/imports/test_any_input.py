"""Whatever is in a file: each key has a row, each client gets what it got, no secret shows, and the tree loads."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from mm2mgr.errors import SpecError
from mm2mgr.formats.recognise import ForeignFile, read_file
from mm2mgr.imports import tree as trees
from mm2mgr.imports.effects import NEVER_VERBATIM, Effects, differs
from mm2mgr.imports.report import Judged
from mm2mgr.imports.tree import ImportOptions, import_tree
from mm2mgr.json_values import to_json
from mm2mgr.truth.keys import load
from tests.examples import sampled

SECRET = "hunter2-of-the-test"
_TYPES = ("source", "checkpoint", "heartbeat")
_KINDS = ("producer", "consumer", "admin")
_PREFIXES = (
    *(f"{kind}." for kind in _KINDS),
    *(f"{kind}.override." for kind in _KINDS),
    *(f"{side}.{kind}." for side in ("source", "target") for kind in (*_KINDS, "cluster")),
    "",
)
_VALUES = (
    *("true", "false", "1", "5000", "all", "foo.*", r"a\\.b, c.*", "x.y", "", "-1", "{{ x }}", "${NAME}", "${env:X}"),
    *("org.apache.kafka.connect.mirror.IdentityReplicationPolicy", "SASL_SSL", "h1:9092,h2:9092", "a{1,2}", "[[a]&&b]"),
    *("4 # four", "é"),
)


def names(scope: str) -> list[str]:
    return [name for name in load().names(scope) if "<" not in name]


def value_of(draw: random.Random, key: str) -> str:
    if any(word in key for word in ("password", "jaas", "secret", "passphrase")):
        login = f'org.x.PlainLoginModule required username="u" password="{SECRET}";'
        return draw.choice([SECRET, "${file:/a:b}", login])
    return draw.choice(_VALUES)


def properties_text(draw: random.Random) -> str:
    aliases = ["A", "B", "C.d"][: draw.choice([2, 3])]
    lines = [f"clusters = {', '.join(aliases)}", "A->B.enabled = true"]
    lines += [f"{alias}.bootstrap.servers = {alias.replace('.', '')}-k:9092" for alias in aliases]
    for _ in range(draw.randint(0, 25)):
        alias, other, kind = draw.choice(aliases), draw.choice(aliases), draw.choice(_KINDS)
        own, plain = draw.choice(names(draw.choice(_TYPES))), draw.choice(names(kind))
        key = draw.choice(
            [
                own,
                f"{alias}->{other}.{own}",
                f"{alias}->{other}.enabled",
                f"{alias}.{kind}.{plain}",
                f"{alias}.{plain}",
                f"{alias}->{other}.{draw.choice(_PREFIXES)}{plain}",
                draw.choice(_PREFIXES) + plain,
                draw.choice(["topics.blacklist", "foo.bar", "A->B.enabel", "transforms", "A->B.transforms.f.type"]),
            ]
        )
        lines.append(f"{key} = {value_of(draw, key)}")
    return "\n".join(lines)


def json_text(draw: random.Random) -> str:
    dump = []
    for number in range(draw.randint(1, 5)):
        type_ = draw.choice(["Source", "Source", "Checkpoint", "Heartbeat"])
        source, target = draw.sample(["A", "B", "C.d"], 2)
        config = {
            "connector.class": f"org.apache.kafka.connect.mirror.Mirror{type_}Connector",
            "source.cluster.alias": source,
            "target.cluster.alias": target,
            "source.cluster.bootstrap.servers": f"{source.replace('.', '')}:1",
            "target.cluster.bootstrap.servers": f"{target.replace('.', '')}:1",
        }
        for _ in range(draw.randint(0, 15)):
            of_client = draw.choice(_PREFIXES) + draw.choice(names(draw.choice(_KINDS)))
            own = draw.choice(names(type_.lower()))
            key = draw.choice([of_client, own, "topics.blacklist", "foo", "transforms.f.type"])
            if key not in config and key != "name":
                config[key] = value_of(draw, key)
        dump.append({"name": f"n{number}", "config": config})
    return json.dumps(dump, indent=1)


def written_keys(file: ForeignFile) -> set[tuple[int, str]]:
    if file.syntax == "dedicated":
        return {(entry.line, entry.key) for entry in file.entries}
    return {(entry.line, entry.key) for connector in file.connectors for entry in connector.entries if entry.path}


@sampled("seed", range(12), range(3_000))
def test_an_import_keeps_what_each_client_gets_and_has_a_row_for_each_key(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    is_json = draw.random() < 0.5
    text = json_text(draw) if is_json else properties_text(draw)
    try:
        file = read_file(Path("east.json" if is_json else "mm2.properties"), text.encode())
    except SpecError:
        return
    judged: list[Judged] = []
    judge = trees._Draft.judge_pairs
    monkeypatch.setattr(trees._Draft, "judge_pairs", lambda draft: judged.extend(judge(draft)) or judge(draft))
    version = draw.choice([None, "2.7", "3.5", "3.9", "4.1"])
    tree = import_tree([file], ImportOptions(owner="team", version=version))

    shown = "".join(tree.files.values()) + json.dumps(to_json(tree.report))
    assert SECRET not in shown
    rows = [(row.line, row.key) for row in tree.report.rows]
    assert set(rows) == written_keys(file)
    assert len(rows) == len(set(rows))
    for pair in judged:
        before = Effects(pair.mirror.type, pair.mirror.config, pair.before)
        after = Effects(pair.mirror.type, pair.connector.config, pair.after)
        readers = dict.fromkeys((*before.all_readers(), *after.all_readers()))
        other = [reader for reader in readers if differs(reader, before, after)]
        kept = [reader for reader in other if reader.client or reader.plain not in NEVER_VERBATIM | {"tasks.max"}]
        assert kept == []
