"""Whatever `lint --fix` changes in random files with logins: each secret, and each place where one is to be read, is still in its file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.errors import SpecError
from mm2mgr.expand import expand
from mm2mgr.lint.fixing import heal, patch
from mm2mgr.lint.reading import read_files
from mm2mgr.lint.rules import RULES, find
from mm2mgr.lint.subject import Estate
from mm2mgr.lint.tree import from_tree
from mm2mgr.render import render
from mm2mgr.spec.files import load
from tests.examples import draw_examples
from tests.spec.trees import BASE, FLOW

PREFIXES = [
    "a.",
    "b.",
    "a->b.",
    "b->a.",
    "a.consumer.",
    "b.producer.",
    "a.admin.",
    "a->b.producer.",
    "consumer.",
    "producer.",
    "admin.",
    "source.cluster.",
    "target.cluster.",
    "source.consumer.",
    "target.producer.",
    "producer.override.",
    "consumer.override.",
    "admin.override.",
    "transforms.x.",
    "topic.creation.",
    "offset-syncs.topic.",
    "src.kafka.",
    "dest.kafka.",
    "config.providers.x.",
    "worker.",
]
PLAINS = [
    "ssl.truststore.password",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.keystore.key",
    "sasl.jaas.config",
    "sasl.client.secret",
    "basic.auth.user.info",
    "registry.api.key",
    "confluent.license",
    "oauth.assertion",
    "security.protocol",
    "max.poll.records",
    "topics",
    "url",
    "group.id",
]
DEDICATED = [
    "clusters=a,b",
    "a.bootstrap.servers=a:9092",
    "b.bootstrap.servers=b:9092",
    "a->b.enabled=true",
    "tasks.max=2",
]
CONNECTOR = {
    "name": "orders",
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "a",
    "source.cluster.bootstrap.servers": "a1:9092",
    "target.cluster.alias": "b",
    "target.cluster.bootstrap.servers": "b1:9092",
    "topics": "orders",
}
SHAPES = (
    "{}",
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{}";',
    "org.apache.kafka.common.security.scram.ScramLoginModul username=u password={}",
    "PlainLoginModule required username=“u” password=“{}”",
    "http://app:{}@registry:8081",
    "${{file:/p:{}}}",
    "{}   # the old one",
    r"\.{}",
    "user:{}",
)


SLIPS = {
    "password": ("pasword", "passwrod", "passwort"),
    "secret": ("scret", "secert"),
    "jaas.config": ("jass.config", "jaas.confg"),
    "key": ("key",),
}


def slip(key: str, number: int) -> str:
    for word, slips in SLIPS.items():
        if key.endswith(word):
            return key.removesuffix(word) + (word, *slips)[number % (len(slips) + 1)]
    return key


KEYS = st.builds(
    lambda prefix, plain, number: prefix + slip(plain, number),
    st.sampled_from([*PREFIXES, ""]),
    st.sampled_from(PLAINS),
    st.integers(0, 3),
)
LINES = st.lists(st.tuples(KEYS, st.sampled_from(SHAPES), st.integers(0, 3)), min_size=1, max_size=7)


def is_one(key: str, shape: str) -> bool:
    """Tell whether the value is a secret by its key, however it is spelt, or by its look."""
    return (
        key.rpartition(".")[2] not in ("protocol", "records", "topics", "url", "id")
        or "{}@" in shape
        or 'password="' in shape
    )


def text_of(form: str, lines: Sequence[tuple[str, str]]) -> str:
    if form == "dedicated":
        return "\n".join([*DEDICATED, *(f"{key}={value}" for key, value in lines), ""])
    if form == "properties":
        return "\n".join([*(f"{key}={value}" for key, value in [*CONNECTOR.items(), *lines]), ""])
    if form == "json":
        members = ",\n ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in [*CONNECTOR.items(), *lines])
        return f"{{{members}}}"
    if form == "strimzi":
        config = "\n".join(
            f"    {json.dumps(key)}: {json.dumps(value)}"
            for key, value in {**CONNECTOR, **dict(lines)}.items()
            if key not in ("name", "connector.class")
        )
        head = "apiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaConnector\nmetadata: {name: orders}\nspec:\n"
        return f"{head}  class: {CONNECTOR['connector.class']}\n  config:\n{config}\n"
    blocks = ("source_consumer", "record_producer", "source_connector", "checkpoint_connector")
    parts = [dict(lines[at :: len(blocks)]) for at in range(len(blocks))]
    return (
        BASE
        + FLOW
        + "".join(f"    {block}: {json.dumps(part)}\n" for block, part in zip(blocks, parts, strict=True) if part)
    )


def read(path: Path, contents: Mapping[str, bytes], form: str) -> Estate:
    if form != "tree":
        return read_files([path], contents=contents)
    spec = load([path], contents)
    topology = expand(spec)
    return from_tree(topology, render(topology), spec, contents)


@pytest.mark.parametrize("form", ["dedicated", "properties", "json", "strimzi", "tree"])
@draw_examples(5, many=100)
@given(drawn=LINES)
def test_every_secret_is_still_in_the_file(form: str, drawn: list[tuple[str, str, int]]) -> None:
    if form == "strimzi":  # which is written from a mapping: of equal keys only the last is in the file
        drawn = list({line[0]: line for line in drawn}.values())
    secrets = [f"geheim{number}x{at % 3}" for at, (_, _, number) in enumerate(drawn)]  # some are equal
    text = text_of(form, [(key, shape.format(secret)) for (key, shape, _), secret in zip(drawn, secrets, strict=True)])
    secrets = [
        secret for secret, (key, shape, _) in zip(secrets, drawn, strict=True) if secret in text and is_one(key, shape)
    ]
    plain = {key for key, shape, _ in drawn if not is_one(key, shape)}  # its value may be that of a secret by chance
    with TemporaryDirectory() as folder:
        path = (
            Path(folder)
            / f"orders.{ {'json': 'json', 'dedicated': 'properties', 'properties': 'properties'}.get(form, 'yaml') }"
        )
        path.write_text(text, encoding="utf-8")
        try:
            estate = read(path, {}, form)
        except SpecError:
            return  # nothing is fixed in what cannot be read
        result = heal({str(path): text.encode()}, lambda changed: read(path, changed, form))
        after = result.contents.get(str(path), text.encode()).decode()
        assert [secret for secret in secrets if secret not in after] == [], after
        for finding, hit in find(estate, RULES):
            gone = {step["path"][1:] for step in patch(finding, hit) if step["op"] in ("remove", "replace")}
            config = {
                **(hit.subject.config if hit.subject else {}),
                **{edit.at.key: edit.at.value for edit in hit.edits if edit.at},
            }
            left = "\n".join(value for key, value in config.items() if key not in gone)
            kept = (secret in left for key in gone - plain for secret in secrets if secret in config.get(key, ""))
            assert all(kept), finding
