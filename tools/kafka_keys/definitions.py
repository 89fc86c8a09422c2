"""Reads the config definitions of one Kafka line out of its running jars, by py4j.

It loads classes and starts no server, opens no Kafka connection, and never keeps a description. What a validator says of
itself becomes a short, stable notation: "[0,...,900]", "[none, all]", "not empty"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from subprocess import TimeoutExpired, run
from typing import Any
from zipfile import ZipFile

from mm2mgr.errors import PackageMissing, SandboxError
from mm2mgr.truth.classes import INTERFACES, PLUGINS
from tools.kafka_keys.rows import Facts, Snapshot

_KAFKA = "org.apache.kafka."
_CREATABLE = Path(__file__).with_name("Classes.java")
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_MIRROR = {
    "source": "MirrorSourceConnector",
    "checkpoint": "MirrorCheckpointConnector",
    "heartbeat": "MirrorHeartbeatConnector",
}
# Connector → the filters it makes; they read the connector's keys through definitions of their own.
_FILTERS = {
    "source": ("DefaultTopicFilter$TopicFilterConfig", "DefaultConfigPropertyFilter$ConfigPropertyFilterConfig"),
    "checkpoint": ("DefaultTopicFilter$TopicFilterConfig", "DefaultGroupFilter$GroupFilterConfig"),
    "heartbeat": (),
}
_CLIENTS = {
    "producer": "clients.producer.ProducerConfig",
    "consumer": "clients.consumer.ConsumerConfig",
    "admin": "clients.admin.AdminClientConfig",
}
# The least that a config must hold for the framework's own methods to return what they set.
WORKER = {
    **{"bootstrap.servers": "worker:1", "group.id": "worker", "key.converter": _BYTES, "value.converter": _BYTES},
    **{f"{name}.storage.topic": name for name in ("config", "offset", "status")},
}
CONNECTOR = {
    **{"name": "name", "connector.class": f"{_KAFKA}connect.mirror.MirrorSourceConnector"},
    **{"source.cluster.alias": "a", "source.cluster.bootstrap.servers": "a:1"},
    **{"target.cluster.alias": "b", "target.cluster.bootstrap.servers": "b:1"},
}
# Taken from the names above, so they say nothing of the framework.
_FROM_NAMES = ("bootstrap.servers", "client.id", "group.id", "transactional.id", "metrics.context.")


class KafkaClasses:
    """The classes of one Kafka line inside a JVM, reached by reflection: most definitions are not public."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self.packages = gateway.jvm.org.apache.kafka
        self._text = self.packages.common.config.ConfigDef.convertToString

    def type(self, name: str) -> Any:
        return self._gateway.jvm.java.lang.Class.forName(_KAFKA + name)

    def created(self, name: str) -> Any:
        """Create an instance of a class that needs no arguments; one inside another class, too."""
        none = self._gateway.new_array(self._gateway.jvm.java.lang.Object, 0)
        return (
            self.type(name)
            .getConstructor(self._gateway.new_array(self._gateway.jvm.java.lang.Class, 0))
            .newInstance(none)
        )

    def field(self, owner: str, name: str) -> Any:
        return _opened(self.type(owner).getDeclaredField(name)).get(None)

    def call(self, owner: str, name: str, *values: Any, on: Any = None) -> Any:
        """Call a method by its name and its number of arguments; an overload that takes a Map is passed over."""
        found = [each for each in self.type(owner).getDeclaredMethods() if each.getName() == name]
        found = [each for each in found if each.getParameterCount() == len(values)]
        fitting = [each for each in found if "Map" not in [p.getSimpleName() for p in each.getParameterTypes()]]
        arguments = self._gateway.new_array(self._gateway.jvm.java.lang.Object, len(values))
        for place, value in enumerate(values):
            arguments[place] = value
        return _opened(fitting[0]).invoke(on, arguments)

    def has(self, owner: str, name: str, arguments: int | None = None) -> bool:
        """Tell whether a class has a method of this name, with this number of arguments; older lines lack some."""
        found = [each for each in self.type(owner).getDeclaredMethods() if each.getName() == name]
        return any(arguments in (None, each.getParameterCount()) for each in found)

    def map(self, values: Mapping[str, str]) -> Any:
        java_map = self._gateway.jvm.java.util.HashMap()
        for name, value in values.items():
            java_map.put(name, value)
        return java_map

    def facts(self, definition: Any) -> dict[str, Facts]:
        """Return the facts of a ConfigDef's keys; descriptions stay in the JVM."""
        return {key.name: self._facts_of(key) for key in definition.configKeys().values()}

    def _facts_of(self, key: Any) -> Facts:
        facts: Facts = {"type": key.type.name().lower()}
        if key.hasDefault():
            text = self._text(key.defaultValue, key.type)
            # A list of classes comes as "class a.B,class a.C", which is not how one writes it.
            facts["default"] = re.sub(r"(^|,)class ", r"\1", text) if text else text
        if key.validator is not None and (valid := _validity(key.validator)):
            facts["valid"] = valid
        facts["importance"] = key.importance.name().lower()
        if re.match(r"\W*deprecated\b", key.documentation or "", re.IGNORECASE):
            facts["deprecated"] = True
        return facts | ({"internal": True} if key.internalConfig else {})


def _opened(member: Any) -> Any:
    member.setAccessible(True)
    return member


def _validity(validator: Any) -> str:
    conditions = [notation(validator.toString())]
    if validator.getClass().getSimpleName() == "ValidList":  # KIP-1161 (4.2): it keeps this to itself
        fields = validator.getClass().getDeclaredFields()
        for field in fields:
            words = {"isEmptyAllowed": "not empty", "isNullAllowed": "not null"}.get(field.getName())
            conditions += [words] if words and not _opened(field).get(validator) else []
        conditions += ["no doubles"] if any("isEmptyAllowed" in field.getName() for field in fields) else []
    return "; ".join(each for each in conditions if each)


def read(java: Path, jars: Sequence[Path]) -> Snapshot:
    """Return everything one Kafka line defines; raises SandboxError when its classes cannot be read."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        with gateway(java, jars) as opened:
            kafka, created = KafkaClasses(opened), classes(java, jars)
            keys = _keys(kafka) | _plugins(kafka, created)
            return {"keys": keys, "clients": _clients(kafka), "classes": created}
    except (Py4JError, TypeError, IndexError) as error:  # py4j takes a class that is gone for a package: TypeError
        raise SandboxError(
            f"the config definitions of {jars[0].parent.name} could not be read",
            hint="a class or method has moved: compare tools/kafka_keys/definitions.py with that Kafka version",
        ) from error


def classes(java: Path, jars: Sequence[Path]) -> dict[str, dict[str, Facts]]:
    """Return, by interface, the classes of Kafka's own jars that can be created from their name."""
    names = [
        name.removesuffix(".class").replace("/", ".")
        for jar in jars
        if jar.name.startswith(("kafka-clients-", "connect-"))
        for name in ZipFile(jar).namelist()
        if name.startswith("org/apache/kafka/") and name.endswith(".class")
    ]
    command = [str(java), "-cp", ":".join(map(str, jars)), str(_CREATABLE), *INTERFACES.values()]
    done = run(command, input="\n".join(names), capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise SandboxError(f"the classes of {jars[0].parent.name} could not be read: {done.stderr[-500:]}")
    pairs = sorted(line.split() for line in done.stdout.splitlines())
    short = {name: word for word, name in INTERFACES.items()}
    found: dict[str, dict[str, Facts]] = {word: {} for word in INTERFACES}
    for interface, name in pairs:
        found[short[interface]][name.removeprefix(_KAFKA)] = {}
    return {word: names for word, names in found.items() if names}


def _keys(kafka: KafkaClasses) -> dict[str, dict[str, Facts]]:
    framework = _framework(kafka)
    scopes = {scope: _connector(kafka, scope) | framework for scope in _MIRROR}
    for scope, owner in _CLIENTS.items():
        scopes[scope] = kafka.facts(kafka.field(owner, "CONFIG"))
    worker = "connect.runtime.distributed.DistributedConfig"
    if kafka.has(worker, "config"):  # since 3.2
        definition = kafka.call(worker, "config", kafka.field("connect.runtime.distributed.Crypto", "SYSTEM"))
    else:
        definition = kafka.field(worker, "CONFIG")
    scopes["worker"] = kafka.facts(definition)
    return scopes


def _connector(kafka: KafkaClasses, scope: str) -> dict[str, Facts]:
    """Return the keys of one MirrorMaker connector, and those that only its filters define."""
    own = kafka.facts(getattr(kafka.packages.connect.mirror, _MIRROR[scope])().config())
    for name in _FILTERS[scope]:
        reader = {"read_by": name.partition("$")[0]}
        found = kafka.facts(kafka.field(f"connect.mirror.{name}", "DEF"))
        own |= {key: facts | reader for key, facts in found.items() if key not in own}
    return own


def _plugins(kafka: KafkaClasses, created: Mapping[str, Mapping[str, Facts]]) -> dict[str, dict[str, Facts]]:
    """Return the settings of each transformation, predicate and converter by its class; X$Key and X$Value are one, X."""
    found = {}
    for name in (name for purpose in PLUGINS for name in created.get(purpose, ())):
        definition = kafka.created(name).config()
        facts = kafka.facts(definition)
        facts.pop("converter.type", None)  # the framework sets it
        if facts:
            found[name.partition("$")[0]] = facts
    return found


def _framework(kafka: KafkaClasses) -> dict[str, Facts]:
    """Return the keys that Connect gives every source connector, those with a chosen part in their name included."""
    connect = kafka.packages.connect.runtime
    named = kafka.map({**CONNECTOR, "transforms": "<alias>", "predicates": "<alias>"})
    with_plugins = connect.ConnectorConfig.enrich(None, connect.SourceConnectorConfig.configDef(), named, False)
    facts = kafka.facts(connect.SourceConnectorConfig.embedDefaultGroup(with_plugins))
    for name, each in kafka.facts(connect.TopicCreationConfig.configDef("<group>", 1, 1)).items():
        # The 1s stand for the default group's numbers, which a group without numbers takes.
        other = {"default": None} if each.get("default") == "1" else {"valid": "regular expressions"}
        facts[f"topic.creation.<group>.{name}"] = each | other  # REGEX_VALIDATOR calls itself a positive number
    return facts


def _clients(kafka: KafkaClasses) -> dict[str, dict[str, Facts]]:
    """Return what Connect and MirrorMaker set on their clients, out of the very methods that build those configs."""
    runtime, mirror = "connect.runtime.Worker", "connect.mirror.MirrorConnectorConfig"
    task, made_for = (
        kafka.packages.connect.util.ConnectorTaskId("name", 0),
        worker_arguments(kafka, WORKER, CONNECTOR),
    )
    role = () if kafka.has(mirror, "sourceConsumerConfig", 0) else ("role",)  # KAFKA-14838 (3.5)
    own = mirror_config(kafka, CONNECTOR)
    found = {}
    if kafka.has(runtime, "baseProducerConfigs"):  # KIP-618 (3.3)
        found["record_producer"] = kafka.call(runtime, "baseProducerConfigs", "name", "client", *made_for)
        found["record_producer_exactly_once"] = kafka.call(
            runtime, "exactlyOnceSourceTaskProducerConfigs", task, *made_for
        )
        found["offsets_consumer"] = kafka.call(
            runtime, "regularSourceOffsetsConsumerConfigs", "name", "client", *made_for
        )
    else:
        found["record_producer"] = kafka.call(runtime, "producerConfigs", task, "client", *made_for)
    found["source_consumer"] = kafka.call(mirror, "sourceConsumerConfig", *role, on=own)
    if kafka.has(mirror, "targetConsumerConfig"):  # KIP-716 (3.0)
        found["target_consumer"] = kafka.call(mirror, "targetConsumerConfig", *role, on=own)
    return {client: _set(configs) for client, configs in found.items()}


def worker_arguments(kafka: KafkaClasses, worker: Mapping[str, str], connector: Mapping[str, str]) -> tuple[Any, ...]:
    """Return the last five arguments of the methods of Connect's Worker that build the configs of its clients."""
    connect = kafka.packages.connect
    return (
        connect.runtime.distributed.DistributedConfig(kafka.map(worker)),
        connect.runtime.ConnectorConfig(None, kafka.map(connector)),
        kafka.type("connect.mirror.MirrorSourceConnector"),
        connect.connector.policy.AllConnectorClientConfigOverridePolicy(),
        "cluster",
    )


def mirror_config(kafka: KafkaClasses, connector: Mapping[str, str]) -> Any:
    """Return MirrorMaker's config of a source connector; before 3.4 one class served all connectors."""
    try:
        return kafka.packages.connect.mirror.MirrorSourceConfig(kafka.map(connector))
    except TypeError:
        return kafka.packages.connect.mirror.MirrorConnectorConfig(kafka.map(connector))


def _set(configs: Mapping[str, object]) -> dict[str, Facts]:
    chosen = {name: configs[name] for name in configs if not name.startswith(_FROM_NAMES)}
    return {
        name: {"value": str(value).lower() if isinstance(value, bool) else str(value)} for name, value in chosen.items()
    }


def _bridge_jar() -> Path:
    """Return the jar of Py4J that PySpark ships."""
    package = find_spec("pyspark")
    for location in (package.submodule_search_locations or ()) if package else ():
        for jar in Path(location, "jars").glob("py4j-*.jar"):
            return jar
    raise PackageMissing("pyspark")


@contextmanager
def gateway(java: Path, jars: Sequence[Path]) -> Iterator[Any]:
    """Start a JVM on the jars and stop it; it also ends when this process does, because its stdin closes."""
    from py4j.java_gateway import (  # type: ignore[import-untyped]
        GatewayParameters,
        JavaGateway,
        launch_gateway,
    )

    port, token, process = launch_gateway(
        jarpath=str(_bridge_jar()),
        classpath=":".join(map(str, jars)),
        javaopts=["-Xmx256m", "-XX:TieredStopAtLevel=1"],
        java_path=str(java),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_field=True))
    try:
        yield gateway
    finally:
        gateway.shutdown()
        process.stdin.close()
        with suppress(TimeoutExpired):
            process.wait(timeout=5)
        process.kill()
        process.wait()


# What the validator says → what the data says. A group is put back with \1.
_WORDS: tuple[tuple[str, str], ...] = (
    (r"non-empty (?:string|list)", "not empty"),
    (r"non-empty string, valid regex", "not empty; a regular expression"),
    (r"valid regex", "a regular expression"),
    (r"list of colon-delimited pairs, .*", "pairs"),
    (r"non-empty string without ISO control characters", "not empty; no control characters"),
    (r"non-null string", "not null"),
    (r"non-null string, unique (?:\w+ )+(?:aliases|groups)", "not null; unique"),
    (r"A concrete subclass of ([\w.$]+), .*", r"subclass of \1"),
    (r"Positive number\b.*-1 .*", "[1,...] or -1"),
    (r"List of comma-separated URLs.*", "URLs"),
    (r"Comma-separated header rules.*", "header rules"),
    (r"Any (KeyGenerator|MAC) algorithm.*", r"\1 algorithm of the JVM"),
    (r"A list of one or more MAC algorithms.*", "MAC algorithms of the JVM"),
    (r"valid configs for \S+ (?:transformation|predicate)", "plugin class"),
)
_RANGE = re.compile(r"\[[^\[\]]*\.\.\.[^\[\]]*\](?: or -1)?")
_CHOICE = re.compile(r"\[[^\[\]]*\]")
_ANY_CASE = re.compile(r"\(case insensitive\) \[([^\[\]]*)\]")
_OBJECT = re.compile(r"([\w.$]+?)(?:\$\$Lambda[^@]*)?@[0-9a-f]+")


def notation(text: str) -> str:
    """Return the short form of a validator's text; raises SandboxError for a sentence that is not in the table."""
    if text == "" or _RANGE.fullmatch(text) or _CHOICE.fullmatch(text):
        return text
    if found := _ANY_CASE.fullmatch(text):
        # Java's sets have an order of their own in each run.
        return f"[{', '.join(sorted(found[1].split(', ')))}] in any case"
    if found := _OBJECT.fullmatch(text):  # it has no text of its own, only its class has a name
        return f"checked by {found[1].rpartition('.')[2]}"
    for sentence, short in _WORDS:
        if found := re.fullmatch(sentence, text):
            return found.expand(short)
    raise SandboxError(
        f"a Kafka validator describes itself in unknown words: {text[:120]!r}",
        hint="give them a short form in tools/kafka_keys/definitions.py",
    )
