"""Rules about the values of workers' properties, as --worker, mm2.properties or an operator's resource give them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mm2mgr.formats.templates import is_open
from mm2mgr.lint.findings import RECORDS, Hit, estate_rule
from mm2mgr.lint.rules.dedicated_workers import WorkerLines
from mm2mgr.lint.subject import Estate, Spot, Subject
from mm2mgr.secrets import is_secret
from mm2mgr.truth.keys import allowed_values, fault, is_checked, load
from mm2mgr.truth.reach import CLUSTER_KEYS

_SIGNATURE, _VERIFICATION = "inter.worker.signature.algorithm", "inter.worker.verification.algorithms"
_SIZE = "inter.worker.key.size"
_LEAST_BITS = 40  # of Java's generators for HMAC keys
_PRODUCER = "producer."
_OVERRIDE = re.compile(r"(producer|consumer|admin)\.override\.")
_STARTS = "the workers do not start"


@estate_rule(
    "worker-value", "error", source="Kafka's definitions of WorkerConfig, DistributedConfig and RestServerConfig"
)
def worker_value(estate: Estate) -> Iterator[Hit]:
    """Kafka's definition of a workers' setting does not allow this value.

    Workers check their properties when they start, and end with a ConfigException: no partitions or replicas for a
    storage topic, a security.protocol that does not exist, listeners with an empty item, a rule for response headers
    without a name, a signature algorithm that is not among the verification algorithms. Their `producer.` lines are for
    the record producer of each connector that does not override them: the workers start, and its tasks are FAILED. In
    mm2.properties the lines of the target, and those of storage topics at the top level, are the workers'. A line that
    only a connector may have, producer.override.acks, does nothing there (warning). Each line is reported once.
    """
    lines = WorkerLines(estate.files)
    faults: dict[tuple[int, str], list[tuple[str, str, str]]] = {}
    reported: set[tuple[Spot, str]] = set()
    for subject in estate.subjects:
        properties = subject.worker.properties
        if not properties or not subject.kind.of_known_line:
            continue
        rest = faults.setdefault((id(properties), subject.version), [])
        if not rest:
            rest += (*_faults(properties, subject.version), ("", "", ""))
        for key, wrong, right in rest[:-1]:
            if key.startswith(_PRODUCER) and subject.written(RECORDS, key.removeprefix(_PRODUCER)):
                continue
            spot, name = _place(subject, lines, key)
            if name and (spot, key) not in reported:
                reported.add((spot, key))
                value = "" if is_secret(key) else f"={properties[key].strip()}"
                effect = (
                    "its tasks are FAILED when they create the record producer"
                    if key.startswith(_PRODUCER)
                    else _STARTS
                )
                yield Hit(f"{name}{value} is {wrong}: {effect}", f"write {right} for {name}", key, subject, spot)
        for key in properties if subject.form == "connect" else ():
            spot, name = _place(subject, lines, key)
            if _OVERRIDE.match(key) and (spot, key) not in reported:
                reported.add((spot, key))
                right = key.replace(".override.", ".", 1)
                message = f"{name} does nothing: connectors have such keys, and workers give their connectors {right}"
                yield Hit(message, f"write {right} for it", key, subject, spot, severity="warning")


def _place(subject: Subject, lines: WorkerLines, key: str) -> tuple[Spot, str]:
    """Return a property's place and name in its file; "" where connectors have the line too (see invalid-value)."""
    if subject.form == "dedicated":
        spot, line = lines.line_of(subject, key)
        return spot, line.key if line and key not in CLUSTER_KEYS else ""
    return Spot(subject.spot.file, subject.spot.line, subject.spot.connect, key=key), f"the workers' {key}"


def _faults(properties: Mapping[str, str], version: str) -> Iterator[tuple[str, str, str]]:
    """Yield each key whose value is refused, with the reason and what is right."""
    for key, value in properties.items():
        scope, plain = ("producer", key.removeprefix(_PRODUCER)) if key.startswith(_PRODUCER) else ("worker", key)
        definition = None if is_open(value) else load().find(scope, plain, version)
        if definition and is_checked(definition) and (wrong := fault(scope, plain, version, value)):
            yield key, wrong, allowed_values(definition)
    size = properties.get(_SIZE, "").strip()
    if re.fullmatch(r"-?[0-9]{1,10}", size) and int(size) < _LEAST_BITS:
        yield _SIZE, "too short for a key", f"{_LEAST_BITS} or more bits, or leave it out,"
    verified = [algorithm.strip() for algorithm in properties.get(_VERIFICATION, "HmacSHA256").split(",")]
    signature = properties.get(_SIGNATURE, "HmacSHA256").strip()
    if any(verified) and signature not in verified and not any(map(is_open, (signature, *verified))):
        key = _SIGNATURE if _SIGNATURE in properties else _VERIFICATION
        yield (
            key,
            f"without each other: {_VERIFICATION} does not list {signature}",
            f"{signature} into {_VERIFICATION}, too,",
        )
