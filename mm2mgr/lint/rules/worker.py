"""Rules about a connector and its workers: override policy, where records go, converters, config providers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from mm2mgr.formats.connectors import CONVERTERS
from mm2mgr.formats.templates import UNNAMED, is_open, templates
from mm2mgr.lint.findings import (
    RECORDS,
    Edit,
    Hit,
    Severity,
    client_edit,
    connector_hit,
    edit_hit,
    estate_rule,
    file_key,
    keys_ending,
    rule,
    spell,
    yaml,
)
from mm2mgr.lint.hops import Point, point, same
from mm2mgr.lint.rules.security import configured_value, lacking_in_override
from mm2mgr.lint.subject import Estate, Spot, Subject, SubjectKind, addresses
from mm2mgr.spec.scalars import SECURITY_KEYS
from mm2mgr.truth.explain import policy_name, policy_refuses
from mm2mgr.truth.keys import load
from mm2mgr.truth.reach import numbers

_LIVE = "tests/lint/test_seen_live_start.py::"
POLICY = "connector.client.config.override.policy"
ALLOWLIST = "connector.client.config.override.allowlist"
_RECORDS = "producer.override."
_ADDRESS = "bootstrap.servers"
_PLACEHOLDER = re.compile(r"\$\{([^}:\s]+):[^}]*\}")


@rule(
    "policy-forbids",
    "error",
    "KIP-458, KIP-1188",
    needs=(".override.",),
    live="tests/plan/test_policies_live.py",
    reads=keys_ending(),
)
def policy_forbids(subject: Subject) -> Iterator[Hit]:
    """The override policy of the workers refuses keys that the connector needs.

    connector.client.config.override.policy of the workers decides which producer.override.*, consumer.override.* and
    admin.override.* keys a connector may have: All (the default since 3.0, None before) allows all, Principal only
    security.protocol, sasl.mechanism and sasl.jaas.config, Allowlist (since 4.2) the listed ones, None nothing. Connect
    refuses the config (400). producer.override.* is always checked, the two others only where Connect has such clients:
    exactly-once workers, offsets.storage.topic, and topic.creation.* for the admin client.
    """
    refused = [key for key in checked_by_policy(subject.kind) if _is_refused(subject, key)]
    if refused:
        policy = _policy(subject)
        who = f"policy {policy}" if policy else "override policy"
        message = f"the workers' {who} refuses {', '.join(refused)}: Connect refuses the config (400)"
        yield Hit(message, _allowing(subject, refused), refused[0])
    elif (keys := checked_by_policy(subject.kind)) and _refuses_by_default(subject):
        effect = "the default before 3.0 is None"
        message = f"workers of {subject.version} refuse {', '.join(keys)} (400) unless their policy allows it: {effect}"
        yield Hit(message, _allowing(subject, keys), keys[0]).with_severity("warning")


def _refuses_by_default(subject: Subject) -> bool:
    version, worker = subject.known_version, subject.worker
    unknown = worker.policy is None and worker.properties is None and not worker.allowed
    return unknown and subject.form != "dedicated" and version is not None and numbers(version) < (3, 0)


def _allowing(subject: Subject, refused: Sequence[str]) -> str:
    """Say how to allow these keys on the workers without refusing one that they allow now."""
    new = plain_keys(refused)
    allowed = [key for key in plain_keys([*checked_by_policy(subject.kind), *subject.worker.allowed]) if key not in new]
    if _policy(subject) != "Allowlist":
        return f"set {POLICY}=All on the workers, or Allowlist with {ALLOWLIST}={','.join(sorted([*allowed, *new]))}"
    if subject.worker.properties is not None:
        return f"set {ALLOWLIST}={','.join([*_allowlist(subject), *new])} on the workers, or {POLICY}=All"
    among = f", including {', '.join(allowed)}" if allowed else ""
    return f"add {','.join(new)} to {ALLOWLIST} of the workers and keep its entries{among}; or set {POLICY}=All"


def plain_keys(keys: Iterable[str]) -> list[str]:
    """Return the keys of clients that are overridden, each once."""
    return sorted({key.partition(".override.")[2] for key in keys})


@lru_cache(maxsize=4096)
def checked_by_policy(kind: SubjectKind) -> tuple[str, ...]:
    """Return the keys that the policy checks."""
    consumer = ("consumer.override.",) if kind.setting.has("own offsets") else ()
    admin = ("admin.override.",) if kind.setting.has("framework admin") else ()
    return tuple(key for key in kind.keys if key.startswith((_RECORDS, *consumer, *admin)))


def _policy(subject: Subject) -> str:
    """Return the policy's short name: asked, configured, or the workers' default where their properties are known."""
    named = subject.worker.policy or subject.worker_property(POLICY) or ""
    if not named and subject.worker.properties is not None and subject.known_version:
        definition = load().find("worker", POLICY, subject.known_version)
        named = (definition.default if definition else None) or ""
    return policy_name(named)


def _is_refused(subject: Subject, key: str) -> bool:
    if key in subject.worker.refused:
        return True
    allowlist = None if subject.worker.properties is None else _allowlist(subject)
    return policy_refuses(_policy(subject), key.partition(".override.")[2], allowlist)


def _allowlist(subject: Subject) -> list[str]:
    return [item.strip() for item in (subject.worker_property(ALLOWLIST) or "").split(",") if item.strip()]


@rule("wrong-kafka", "error", "KIP-458", live=_LIVE)
def wrong_kafka(subject: Subject) -> Iterator[Hit]:
    """The records are written to a cluster other than the target.

    Connect's producer writes the records. It uses the workers' own Kafka unless producer.override.bootstrap.servers
    says otherwise; target.cluster.* configures admin clients only. The topics are created on the target and stay empty,
    while the records go to topics of the same name on the workers' Kafka, with one partition, or nowhere. The state is
    RUNNING and offsets advance. The rule compares cluster ids: workers report theirs, brokers are asked with --connect,
    and `cluster_id` in a tree declares one. Without ids an address in both lists means one cluster; records that go to
    the source's address do not go to the target. Host names that look alike, or do not, prove nothing: then it is not
    judged. To compare by hand: GET / of a worker has kafka_cluster_id, kafka-cluster.sh cluster-id asks the target. It
    is a warning where the workers' own producer.bootstrap.servers has no address of the target: it may be another
    listener.
    """
    arriving = arrives(subject)
    if arriving is None and (servers := _redirected_servers(subject)):
        yield _elsewhere(subject, servers)
    if arriving is not False or _is_refused_by_operator(subject):
        return
    own, there, target = subject.get(_RECORDS + _ADDRESS), _destination(subject), subject.target_kafka.cluster_id
    reason = "the record producer's bootstrap.servers are" if own else "the workers use"
    elsewhere = f"another Kafka cluster ({there.cluster_id}, not {target})" if there.cluster_id and target else ""
    reason += (
        f" {'those of ' if own and elsewhere else ''}{elsewhere or f'the address of {subject.source}, the source'}"
    )
    message, key = f"records are not written to {subject.target}: {reason}", _RECORDS + _ADDRESS
    if subject.form == "tree":  # which writes the override itself, once it knows where the workers live
        alias = yaml(subject.connector.connect or "…")
        remedy = "with the Kafka cluster that these workers use, or correct its url"
        fix = f"write connect: {{{alias}: {{kafka: …}}}} {remedy}"
        of_template = (
            f"remove {key} from {subject.type}.properties.j2, your own template: mm2mgr writes it where necessary"
        )
        yield Hit(message, of_template if own else fix, key)
        return
    edits = [client_edit(subject, RECORDS, _ADDRESS, subject.get(f"target.cluster.{_ADDRESS}") or "…")]
    lacking = subject.kind.winners["target admin"].items() if not own else ()  # else see override-insecure
    edits += [
        client_edit(subject, RECORDS, plain, subject.get(key)) for plain, key in lacking if plain in SECURITY_KEYS
    ]
    yield edit_hit(subject, message, edits, key)


def _redirected_servers(subject: Subject) -> str:
    """Return the address that the workers' producer has for itself, where it is none of the target's."""
    key = subject.workers_key(RECORDS, _ADDRESS)
    servers = (subject.worker_property(key) or "") if key == f"producer.{_ADDRESS}" else ""
    theirs = point(subject, "target").addresses
    return servers if theirs and addresses(servers) and not addresses(servers) & theirs else ""


def _elsewhere(subject: Subject, servers: str) -> Hit:
    own = f"producer.{_ADDRESS}"
    message = f"records are written to {servers} ({own} of the workers), an address that {subject.target} does not have"
    target = subject.get(f"target.cluster.{_ADDRESS}")
    fix = f"write {spell(subject, _RECORDS + _ADDRESS, target)}, or remove {own} from the workers' properties"
    if subject.form == "dedicated":
        fix = f"remove {subject.pair.rpartition('->')[2]}.{own}, or write {target} there"
    return Hit(message, fix, _RECORDS + _ADDRESS, severity="warning")


def _is_refused_by_operator(subject: Subject) -> bool:
    """Tell whether Strimzi's operator refuses the resource for where its workers are, as operator-ignores reports."""
    resource = subject.resource
    return resource is not None and any(note.key == "connectCluster" for note in resource.notes)


def arrives(subject: Subject) -> bool | None:
    """Tell whether records are written to the target, by ids or a shared address; None when no fact shows it."""
    there, source, target = _destination(subject), point(subject, "source"), point(subject, "target")
    if same(there, target):
        return True
    if (there.cluster_id and target.cluster_id) or (same(there, source) and not same(source, target)):
        return False
    return None


def _destination(subject: Subject) -> Point:
    if servers := configured_value(subject, RECORDS, _ADDRESS):
        return Point("", addresses(servers), subject.records_kafka.cluster_id)
    servers = subject.worker_property(_ADDRESS) or subject.worker.servers
    return Point("", addresses(servers), subject.worker.cluster_id)


@rule(
    "override-insecure",
    "error",
    "KIP-458",
    stops=True,
    needs=(_RECORDS + _ADDRESS,),
    live="tests/live/test_security.py",
    reads=keys_ending("producer.override.bootstrap.servers", "security.protocol"),
)
def override_insecure(subject: Subject) -> Iterator[Hit]:
    """The record producer has the target's address but not its security settings.

    producer.override.bootstrap.servers sets where the records go, and nothing of target.cluster.* is added to it:
    protocol, login, truststore and keystore must be repeated behind `producer.override.`. Without the protocol the
    producer speaks PLAINTEXT to a TLS port: the state is RUNNING and no record arrives. With a missing store the task
    is FAILED at the first record.
    """
    lacking = lacking_in_override(subject)
    if lacking:
        message = (
            f"the record producer goes to {subject.target} without {', '.join(lacking)}, which target.cluster.* has"
        )
        fix = f"write {', '.join(f'{_RECORDS}{plain}' for plain in lacking)} as for target.cluster.*"
        theirs = subject.kind.winners["target admin"].items()
        missing = [
            (plain, key)
            for plain, key in theirs
            if plain in lacking or (plain in SECURITY_KEYS and not subject.written_key(RECORDS, plain))
        ]
        edits = tuple(client_edit(subject, RECORDS, plain, subject.get(key)) for plain, key in missing)
        if subject.form == "tree":  # which writes one from the other, unless a template of one's own does not
            remedy = "mm2mgr writes it together with the security settings"
            fix = f"remove {_RECORDS}{_ADDRESS} from {subject.type}.properties.j2, your own template: {remedy}"
        yield Hit(message, fix, _RECORDS + _ADDRESS, edits=() if subject.form == "tree" else edits)


@rule("converter", "error", "KIP-382", live=f"{_LIVE}test_converters", reads=keys_ending("converter"))
def converter(subject: Subject) -> Iterator[Hit]:
    """A converter other than ByteArrayConverter changes the mirrored data.

    MirrorMaker passes bytes to Connect. JsonConverter, the default of stock workers, writes them as base64 in JSON and
    fails the task at the first record without a value. StringConverter writes the text of a Java object, and the data
    are lost. The default SimpleHeaderConverter turns every header into base64. There is no other error. A connector
    that does not set its converters uses those of the workers, so set all three. mm2.properties does that by itself.
    Where only header.converter is left to unknown workers it is a warning; checkpoints and heartbeats have no headers.
    """
    converters = {key: _converter(subject, key) for key in CONVERTERS}
    for key, value in converters.items():
        name = (value or "").rpartition(".")[2]
        if value is not None and not is_open(value) and name not in ("ByteArrayConverter", "ByteArray"):
            whose = "" if key in subject.config else "the workers' "
            hit = connector_hit(subject, key, CONVERTERS[key], f"{whose}{key} {name} changes the mirrored data")
            yield hit.with_severity("info") if key == _HEADERS and subject.type != "source" else hit
    unset = [key for key, value in converters.items() if value is None]
    if unset and subject.form != "dedicated":
        effect = "the workers' converters apply, and the defaults change keys, values and headers"
        message = f"{', '.join(unset)} not set: {effect}"
        hit = edit_hit(subject, message, [Edit(key, CONVERTERS[key]) for key in unset], unset[0])
        of_headers: Severity = "warning" if subject.type == "source" else "info"
        yield hit.with_severity(of_headers) if unset == [_HEADERS] else hit


_HEADERS = "header.converter"


def _converter(subject: Subject, key: str) -> str | None:
    own = subject.get(key) or subject.worker_property(key)
    if own or subject.worker.properties is None:
        return own or None
    # The default of DistributedConfig; the workers must set the other two.
    return "org.apache.kafka.connect.storage.SimpleHeaderConverter" if key == _HEADERS else None


@rule("worker-keystore-clash", "error", "KIP-651", needs=(f"{_RECORDS}ssl.",), live=_LIVE)
def worker_keystore_clash(subject: Subject) -> Iterator[Hit]:
    """The workers' producer has a store of another kind, which an override cannot remove.

    Every record producer inherits the workers' producer.ssl.keystore.location and truststore location; a connector can
    replace them but not unset them. With PEM values in the override the task is FAILED because both a location and a
    private key are specified; with a PEM file, because a store password is not allowed. An empty override does not
    help, null is refused, and validation does not detect it. Use the same kind of store as the workers, or workers
    without producer.ssl.*.
    """
    for store in _INLINE:
        if clash := _clash(subject, store):
            key, theirs = clash
            message = (
                f"{key} conflicts with the workers' producer.{theirs}, which cannot be unset: the tasks are FAILED"
            )
            remedy = "or use their kind of store"
            fix = f"remove producer.ssl.keystore.* and producer.ssl.truststore.* from the workers' properties, {remedy}"
            yield Hit(message, fix, key)
            return


_INLINE = {"keystore": ("key", "certificate.chain"), "truststore": ("certificates",)}


def _clash(subject: Subject, store: str) -> tuple[str, str] | None:
    prefix = f"{_RECORDS}ssl.{store}."
    inline = next((f"{prefix}{part}" for part in _INLINE[store] if subject.get(f"{prefix}{part}")), "")
    of_file = f"{prefix}location" if subject.get(f"{prefix}type").upper() == "PEM" else ""
    for key, theirs in ((inline, f"ssl.{store}.location"), (of_file, f"ssl.{store}.password")):
        if subject.get(key) and subject.worker_property(f"producer.{theirs}"):
            return key, theirs
    return None


@rule("provider-unknown", "error", "KIP-297", live=f"{_LIVE}test_unknown_provider")
def provider_unknown(subject: Subject) -> Iterator[Hit]:
    """A placeholder uses a config provider that the workers do not have.

    Workers replace ${name:path:key} with the providers in their config.providers. A placeholder of an unknown provider
    is left unchanged without an error: its literal text becomes the password, the path or the PEM, and the result is a
    failed login or a file that is not found.
    """
    if subject.worker.properties is None:
        return
    declared = f"{subject.worker_property('config.providers') or ''},{subject.get('config.providers')}"
    providers = {name.strip() for name in declared.split(",")}
    for key, value in subject.config.items():
        for name in dict.fromkeys(_PLACEHOLDER.findall(value)):
            if name not in providers and f"${{{name}:-" not in value:  # a default of a shell
                effect = f"the workers have no config provider {name}"
                message = f"${{{name}:…}} in {file_key(subject, key)} is not replaced: {effect}"
                fix = f"write config.providers={name} and config.providers.{name}.class in the workers' properties"
                yield Hit(message, fix, key)


@estate_rule("placeholder-unfilled", "error", "ConfigTransformer, KIP-297")
def placeholder_unfilled(estate: Estate) -> Iterator[Hit]:
    """A placeholder names no config provider, so Kafka takes it as it is written.

    Workers replace ${provider:path:key} and ${provider:key}. `${NAME}`, as shells, envsubst and compose files have it,
    and `$NAME` have no provider and stay: its text becomes the password, the path or the address, and the login fails
    or the file is not found. In a connector that runs, or in a tree, nothing else fills it in (error); a file may be a
    template of such a tool (warning). For variables of the workers' environment write ${env:NAME}, with
    EnvVarConfigProvider (since 3.5). Each file is reported once. Source: ConfigTransformer.
    """
    reported: set[Spot] = set()
    for subject in estate.subjects:
        marked = {key: value for key, value in subject.config.items() if "$" in value}
        searches = ((key, UNNAMED.search(marked[key])) for key in templates(marked))
        variables = [(key, variable) for key, variable in searches if variable]
        in_file = bool(subject.spot.file) and subject.form != "tree"
        place = Spot(subject.spot.file) if in_file else subject.spot
        if not variables or place in reported:
            continue
        reported.add(place)
        (key, variable), *others = variables
        more = f" and others in {len(others)} more keys" if others else ""
        effect = "no config provider is named, so Kafka takes it as it is written"
        message = f"{variable[0]} in {file_key(subject, key)}{more}: {effect}"
        fix = f"write ${{env:{variable['name'] or variable['bare']}}}, with config.providers=env on the workers"
        if in_file:
            fix += "; or fill it in before Kafka reads the file"
        yield Hit(message, fix, key, subject, severity="warning" if in_file else None)


_REPORTERS, _JMX = "metric.reporters", "org.apache.kafka.common.metrics.JmxReporter"
_AUTO_JMX = "auto.include.jmx.reporter"


@estate_rule("jmx-reporter-missing", "warning", "KIP-830")
def jmx_reporter_missing(estate: Estate) -> Iterator[Hit]:
    """A list of metric reporters leaves out Kafka's JmxReporter, so there are no JMX metrics.

    Until 3.9 Kafka adds its JmxReporter to every list unless auto.include.jmx.reporter=false. Since 4.0
    metric.reporters is the whole list (KIP-830): with another reporter alone, whoever reads JMX, such as the JMX
    exporter of Prometheus, sees nothing of these connectors or workers any more, without an error. Add JmxReporter to
    the list. Where the version is not known it is a hint.
    """
    reported: set[tuple[Spot, str]] = set()
    for subject in estate.subjects:
        for value, whose in (
            (subject.config.get(_REPORTERS), ""),
            (subject.worker_property(_REPORTERS), " of the workers"),
        ):
            if value is None or is_open(value) or "JmxReporter" in value or _adds_jmx(subject, whose):
                continue
            spot = Spot(subject.spot.file, 0, subject.spot.connect) if whose else subject.spot_of(_REPORTERS)
            if (spot, whose) in reported:
                continue
            reported.add((spot, whose))
            name = _REPORTERS if whose else file_key(subject, _REPORTERS)
            message = (
                f"{name}{whose} has no JmxReporter: Kafka {subject.version} adds none, so there are no JMX metrics"
            )
            right = ",".join([*(item.strip() for item in value.split(",") if item.strip()), _JMX])
            if whose:
                hit = Hit(message, f"write {_REPORTERS}={right} for the workers", _REPORTERS, subject, subject.spot)
            else:
                hit = edit_hit(subject, message, [Edit(_REPORTERS, right)], _REPORTERS)
            yield hit if subject.known_version else hit.with_severity("info")


def _adds_jmx(subject: Subject, whose: str) -> bool:
    own = subject.worker_property(_AUTO_JMX) if whose else subject.config.get(_AUTO_JMX)
    return numbers(subject.version) < (4, 0) and (own or "true").strip().lower() == "true"
