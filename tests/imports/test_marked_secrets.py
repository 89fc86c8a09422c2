"""Values that a file marks as secret, whatever their keys are called: in no tree, report, check or error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mm2mgr import secrets
from mm2mgr.errors import Mm2mgrError
from mm2mgr.json_values import to_json
from mm2mgr.operations import ImportCheck, ImportOptions, Workspace, check_import, import_sources
from mm2mgr.output.import_check_text import say_equivalence
from mm2mgr.output.import_text import import_markdown, say_import
from tests.examples import sampled

MARKED = "Zq9-Marked-Value"
PLAIN = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    **{"source.cluster.alias": "mill", "target.cluster.alias": "dock", "topics": "parcels"},
    **{"source.cluster.bootstrap.servers": "mill-1:9092", "target.cluster.bootstrap.servers": "dock-1:9092"},
    **{"transforms": "f", "transforms.f.type": "org.apache.kafka.connect.transforms.HoistField$Value"},
}
KEYS = (
    *("name", "source.cluster.alias", "target.cluster.alias", "connector.class", "topics", "topics.exclude", "groups"),
    *("source.cluster.bootstrap.servers", "producer.override.bootstrap.servers", "source.consumer.client.rack"),
    *("producer.override.compression.type", "transforms", "transforms.f.type", "transforms.f.field", "client.id"),
    *("tasks.max", "replication.policy.separator", "replication.policy.class", "offset-syncs.topic.location"),
    *("sync.topic.configs.enabled", "refresh.topics.interval.seconds", "exactly.once.support", "key.converter"),
    *("offsets.storage.topic", "mm2mgr.owner", "mm2mgr.flow", "mm2mgr.start", "mm2mgr.silence.acks", "label"),
)


def hcl(config: Mapping[str, str], more: str = "") -> str:
    lines = (f"    {json.dumps(key)} = {json.dumps(value)}\n" for key, value in config.items())
    return "{\n" + "".join(lines) + more + "  }"


def block(kind: str, **maps: str) -> str:
    inner = "".join(f"  {name} = {text}\n" for name, text in maps.items())
    return f'resource "{kind}" "m" {{\n{inner}}}\n'


def of_kafka_connect(plain: Mapping[str, str], key: str) -> str:
    return block("kafka-connect_connector", name='"mirror"', config=hcl(plain), config_sensitive=hcl({key: MARKED}))


def of_confluent(plain: Mapping[str, str], key: str) -> str:
    return block("confluent_connector", config_nonsensitive=hcl(plain), config_sensitive=hcl({key: MARKED}))


def of_a_variable(plain: Mapping[str, str], key: str) -> str:
    variable = f'variable "x" {{\n  default = "{MARKED}"\n  sensitive = true\n}}\n'
    config = hcl(plain, f"    {json.dumps(key)} = var.x\n")
    return variable + block("kafka-connect_connector", name='"mirror"', config=config)


def of_a_function(plain: Mapping[str, str], key: str) -> str:
    config = hcl(plain, f'    {json.dumps(key)} = sensitive("{MARKED}")\n')
    return block("kafka-connect_connector", name='"mirror"', config=config)


def of_json(plain: Mapping[str, str], key: str) -> str:
    body = {"name": "mirror", "config": plain, "config_sensitive": {key: MARKED}}
    return json.dumps({"resource": {"kafka-connect_connector": {"m": body}}}, indent=1)


def of_a_state(plain: Mapping[str, str], key: str) -> str:
    attributes = {"name": "mirror", "config": plain, "config_sensitive": {key: MARKED}}
    return state(attributes, [{"type": "get_attr", "value": "config_sensitive"}])


def of_a_state_with_a_marked_key(plain: Mapping[str, str], key: str) -> str:
    at = [{"type": "get_attr", "value": "config"}, {"type": "index", "value": {"value": key, "type": "string"}}]
    return state({"name": "mirror", "config": {**plain, key: MARKED}}, at)


def state(attributes: Mapping[str, object], marked: list[object]) -> str:
    instance = {"attributes": attributes, "sensitive_attributes": [marked]}
    resource = {"mode": "managed", "type": "kafka-connect_connector", "name": "m", "instances": [instance]}
    return json.dumps({"version": 4, "terraform_version": "1.9.5", "resources": [resource]}, indent=1)


def of_a_shown_state(plain: Mapping[str, str], key: str) -> str:
    return shown("values", "kafka-connect_connector", "config", plain, key)


def of_a_shown_plan(plain: Mapping[str, str], key: str) -> str:
    return shown("planned_values", "kafka-connect_connector", "config", plain, key)


def of_msk(plain: Mapping[str, str], key: str) -> str:
    return shown("values", "aws_mskconnect_connector", "connector_configuration", plain, key)


def shown(part: str, kind: str, member: str, plain: Mapping[str, str], key: str) -> str:
    values = {"name": "mirror", member: {**plain, key: MARKED}}
    resource = {"address": f"{kind}.m", "mode": "managed", "type": kind, "name": "m", "values": values}
    resource["sensitive_values"] = {member: {key: True}}
    root = {"root_module": {"resources": [resource]}}
    return json.dumps({"format_version": "1.2", "terraform_version": "1.9.5", part: root}, indent=1)


FORMS: Mapping[str, Callable[[Mapping[str, str], str], str]] = {
    "main.tf": of_kafka_connect,
    "confluent.tf": of_confluent,
    "variable.tf": of_a_variable,
    "function.tf": of_a_function,
    "main.tf.json": of_json,
    "terraform.tfstate": of_a_state,
    "marked.tfstate": of_a_state_with_a_marked_key,
    "state.json": of_a_shown_state,
    "plan.json": of_a_shown_plan,
    "msk.json": of_msk,
}
CASES = [f"{form} {key}" for form in FORMS for key in KEYS]
SAMPLE = [
    *(f"{form} {KEYS[number]}" for number, form in enumerate(FORMS)),
    *("main.tf source.consumer.client.rack", "plan.json tasks.max", "main.tf mm2mgr.owner"),
]


@sampled("case", SAMPLE, CASES)
def test_a_marked_value_is_shown_nowhere(tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    form, key = case.split(" ")
    (tmp_path / form).write_text(FORMS[form]({k: v for k, v in PLAIN.items() if k != key}, key), encoding="utf-8")
    texts: list[str] = []
    try:
        imported = import_sources([tmp_path / form], ImportOptions(owner="team"), tmp_path / "out")
    except Mm2mgrError as error:
        assert key == "connector.class"
        texts.append(f"{error} {error.hint}")
    else:
        result = check_import(Workspace((tmp_path / "out",)), [tmp_path / form], ImportCheck("4.3.1"))
        secrets.forget()  # whatever was seen is hidden by its text too: here it may not even be there
        texts += [*imported.tree.files.values(), json.dumps(to_json(imported)), import_markdown(imported)]
        texts += [repr(imported), json.dumps(to_json(result)), repr(result)]
        say_import(imported, everything=True)
        say_equivalence(result)
    texts += capsys.readouterr()
    assert not [text for text in texts if MARKED.lower() in text.lower()]


def test_what_is_called_by_a_secret_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "main.tf").write_text(of_kafka_connect(PLAIN, "source.cluster.alias"), encoding="utf-8")
    [left] = import_sources([tmp_path / "main.tf"]).report.left_out
    assert left.reason == "its file marks source.cluster.alias as secret, and a tree has it in clear"


def test_a_marked_value_is_a_variable_of_the_workers(tmp_path: Path) -> None:
    (tmp_path / "main.tf").write_text(of_kafka_connect(PLAIN, "transforms.f.field"), encoding="utf-8")
    imported = import_sources([tmp_path / "main.tf"])
    [placeholder] = imported.report.placeholders
    assert f"${{env:{placeholder.variable}}}" in imported.tree.files["flows.yaml"]
