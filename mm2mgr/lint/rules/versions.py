"""Rules about the workers' Kafka version: its known bugs, and what a version newer than all known ones will ask."""

from __future__ import annotations

from collections.abc import Iterator

from mm2mgr.lint.findings import Hit, Severity, estate_rule, file_key, keys_ending, rule
from mm2mgr.lint.rules.worker import ALLOWLIST, POLICY, checked_by_policy, plain_keys
from mm2mgr.lint.subject import Estate, Subject
from mm2mgr.text import few, number_of
from mm2mgr.truth.bugs import Bug, bugs_of
from mm2mgr.truth.keys import load
from mm2mgr.truth.reach import numbers

_FORMATS = "metric.names.formats"
_MAJOR = (5, 0)


@estate_rule("known-bug", "warning", source="Apache Kafka's issues and history")
def known_bug(estate: Estate) -> Iterator[Hit]:
    """The workers run a Kafka release with a known bug that concerns these connectors.

    The rule compares the workers' release and the config with the list in [known bugs](../known-bugs.md): which
    releases have a bug, of the connectors or of their clients, for which configs, its effect and what to do until the
    workers are upgraded. Each is reported once per file, at the first connector that it concerns. Bugs whose effect is
    small or rare are reported together, by `minor-bugs`. Without a known version of the workers nothing is reported; of
    a vendor's version without a patch number of Kafka only what the whole line has. `mm2mgr explain KAFKA-12468` prints
    one entry.
    """
    having: dict[tuple[str, str, str, str], tuple[Bug, list[Subject]]] = {}
    for subject in estate.subjects:
        for bug in _bugs(subject, "warning"):
            place = subject.spot.file, subject.connect or subject.spot.connect, subject.version, bug.id
            having.setdefault(place, (bug, []))[1].append(subject)
    for (_, _, version, _), (bug, (first, *others)) in having.items():
        message = f"{bug.id} in Kafka {version} ({bug.fixed_in}): {bug.effect}"
        yield Hit(message, bug.remedy, bug.key, subject=first, others=tuple(others))


@estate_rule("minor-bugs", "info", source="Apache Kafka's issues and history")
def minor_bugs(estate: Estate) -> Iterator[Hit]:
    """The workers run a Kafka release with known bugs of small or rare effect that concern these connectors.

    One finding per version names them all; `known-bug` reports the others one by one. `mm2mgr explain KAFKA-15906`
    prints an entry, and [known bugs](../known-bugs.md) lists them with releases, conditions and remedies. An upgrade of
    the workers removes those that are fixed.
    """
    minor_of: dict[str, tuple[dict[str, Bug], list[Subject]]] = {}
    for subject in estate.subjects:
        for bug in _bugs(subject, "info"):
            bugs, subjects = minor_of.setdefault(subject.version, ({}, []))
            bugs[bug.id] = bug
            if subject not in subjects[-1:]:
                subjects.append(subject)
    for version, (bugs, subjects) in minor_of.items():
        listed = "; ".join(f"{bug.id}: {bug.effect}" for bug in bugs.values())
        effect = f"concern {number_of(len(subjects), 'connector')}: {listed}"
        message = f"Kafka {version} has {number_of(len(bugs), 'known bug')} of small or rare effect that {effect}"
        fix = f"mm2mgr explain {next(iter(bugs))} says what to do; upgrade the workers for those that are fixed"
        yield Hit(message, fix, subject=subjects[0], others=tuple(subjects[1:]))


def _bugs(subject: Subject, severity: Severity) -> Iterator[Bug]:
    version = subject.known_version
    if version and not subject.is_beyond:
        for bug in bugs_of(subject.type, version):
            if bug.severity == severity and bug.rule == "known-bug" and bug.when(subject):
                yield bug


def _is_next_major(subject: Subject) -> bool:
    return subject.known_version is not None and numbers(subject.known_version) >= _MAJOR


@estate_rule("upgrade-override-policy", "warning", source="KIP-1188 (KAFKA-19824)")
def upgrade_override_policy(estate: Estate) -> Iterator[Hit]:
    """From Kafka 5.0 on, workers refuse the client overrides of these connectors unless a line allows them.

    The default of connector.client.config.override.policy is None up to 2.8, All from 3.0 to 4.x, and Allowlist from
    5.0 on, with an empty list: every producer.override.* is refused (400), and tasks that run do not start again. The
    policy Principal is deprecated since 4.2 and goes with 5.0. The fix is the one line that the workers need, with
    exactly the keys that the connectors use. It may be added before the upgrade, together with `…policy=Allowlist` (4.2
    or newer). Use `--kafka 5.0` to ask for the upgrade. A dedicated MirrorMaker allows all overrides by itself.
    """
    refused_of: dict[str, list[Subject]] = {}
    for subject in estate.subjects:
        if _is_next_major(subject) and subject.form != "dedicated" and _is_open(subject):
            refused_of.setdefault(subject.connect or subject.spot.connect, []).append(subject)
    for connect, subjects in refused_of.items():
        keys = plain_keys(key for subject in subjects for key in checked_by_policy(subject.kind))
        who = f"the workers of {connect}" if connect else "the workers"
        version = subjects[0].version
        message = (
            f"Kafka {version} refuses client overrides that {who} do not allow: "
            f"{number_of(len(subjects), 'connector')} would be refused (400): {few([subject.name for subject in subjects])}"
        )
        fix = f"write {ALLOWLIST}={','.join(keys)} in the properties of {who}; or {POLICY}=All, which allows every key"
        first, *others = subjects
        yield Hit(message, fix, checked_by_policy(first.kind)[0], subject=first, others=tuple(others))


def _is_open(subject: Subject) -> bool:
    """Tell whether a connector has overrides, and its workers' policy is the default or one that goes."""
    named = (subject.worker_property(POLICY) or "").rpartition(".")[2]
    return named in ("", "Principal", "PrincipalConnectorClientConfigOverridePolicy") and bool(
        checked_by_policy(subject.kind)
    )


@estate_rule("upgrade-metric-names", "info", source="KIP-1280")
def upgrade_metric_names(estate: Estate) -> Iterator[Hit]:
    """Kafka 5.0 removes MirrorMaker's old metric names, which dashboards and alerts may read.

    Since 4.3 metric.names.formats of source and checkpoint connectors chooses the names: `legacy` (the default) is
    kafka.connect.mirror:type=MirrorSourceConnector and …=MirrorCheckpointConnector, `new` is
    kafka.connect:type=plugins,connector=…,task=… with the same tags behind. The old names go with 5.0. Write
    `legacy,new` on workers of 4.3, move dashboards and alerts, then upgrade. Use `--kafka 5.0` to ask for the upgrade.
    """
    old = [
        subject
        for subject in estate.subjects
        if _is_next_major(subject) and subject.type != "heartbeat" and "new" not in subject.items(_FORMATS)
    ]
    if old:
        effect = f"metrics of {number_of(len(old), 'connector')} have only these names"
        message = f"Kafka {old[0].version} no longer emits kafka.connect.mirror:type=Mirror…Connector: {effect}"
        remedy = "and move dashboards and alerts to kafka.connect:type=plugins before the upgrade"
        fix = f"write {_FORMATS}=legacy,new on workers of 4.3, {remedy}"
        yield Hit(message, fix, _FORMATS, subject=old[0], others=tuple(old[1:]))


@rule("upgrade-deprecated", "info", source="the definitions in Kafka's jars", reads=keys_ending())
def upgrade_deprecated(subject: Subject) -> Iterator[Hit]:
    """A key is deprecated in the newest known Kafka, so a newer one may not have it.

    Kafka removes deprecated keys with a new major version, and connectors ignore unknown ones without an error, as they
    did with topics.blacklist in 4.0. The rule looks at versions newer than all that are known here, such as
    `--kafka 5.0`. Remove the key, or compare with the upgrade notes of that version.
    """
    if not subject.is_beyond:
        return
    newest = load().lines[-1]
    for key in subject.config.keys() - {_FORMATS}:  # upgrade-metric-names judges it by its value
        definition = load().find(subject.type, key, newest)
        if definition and definition.deprecated:
            message = f"{file_key(subject, key)} is deprecated in Kafka {newest}, and {subject.version} may ignore it"
            yield Hit(message, f"remove {file_key(subject, key)} once the workers run {subject.version}", key)
