"""Rules about the text of files: mistakes that the parser reads as something else, and silences without a reason.

Hits never show a value that could be a secret.
"""

from __future__ import annotations

from collections.abc import Iterator

from mm2mgr.formats.mm2_properties import Dedicated
from mm2mgr.formats.properties import Entry, lost_backslashes, remark
from mm2mgr.lint.findings import Hit, estate_rule, rule_ids
from mm2mgr.lint.subject import Estate, Silence, SourceFile, Spot
from mm2mgr.secrets import is_jaas, is_secret, mask
from mm2mgr.text import nearest

_PROPERTIES = ("properties", "dedicated")
# Kafka trims nearly every value (ConfigDef.parseType). These are read past it: by Connect's plugin loader and REST names,
# and by the replication policies, which are handed the originals.
_UNTRIMMED = ("name", "connector.class", "replication.policy.separator")
_IDENTITY = "IdentityReplicationPolicy"

_JAVA = "java.util.Properties.load"


def _spot(file: SourceFile, entry: Entry) -> Spot:
    return Spot(file.path, entry.line, key=entry.key)


def _entries(estate: Estate) -> Iterator[tuple[SourceFile, Entry]]:
    """Yield the entries of files in properties syntax."""
    for file in estate.files:
        if file.kind in _PROPERTIES:
            yield from ((file, entry) for entry in file.entries)


def _shown(key: str, text: str) -> str:
    """Return text of a value for a sentence, cut; nothing of what could be a secret."""
    if mask(key, text) != text or (is_secret(key) and text):
        return "…"
    return text if len(text) <= 80 else f"{text[:77]}…"


@estate_rule("lost-backslash", "error", source=_JAVA, seen="tests/lint/test_seen_live_topics.py::test_lost_backslash")
def lost_backslash(estate: Estate) -> Iterator[Hit]:
    """Java drops a single backslash in a properties file.

    java.util.Properties treats a backslash as the start of an escape and drops it before any other character:
    `foo\\.bar` reaches the connector as `foo.bar`, where the dot matches any character, `\\d+` as `d+`, a Windows path
    without its separators. Nothing is logged. JSON needs the doubled backslash too; YAML in single quotes or without
    quotes does not. Write two backslashes for each literal one.
    """
    for file, entry in _entries(estate):
        doubled = lost_backslashes(entry)
        if doubled is not None:
            got = (
                ""
                if _shown(entry.key, entry.value) == "…"
                else f": the connector gets {_shown(entry.key, entry.value)!r}"
            )
            message = f"the backslash in {entry.key} is dropped when the file is read{got}"
            fix = f"double it: {entry.key} = {_shown(entry.key, doubled)}"
            yield Hit(message, fix, spot=_spot(file, entry))


@estate_rule("comment-in-value", "error", source=_JAVA)
def comment_in_value(estate: Estate) -> Iterator[Hit]:
    """A comment after a value is part of the value.

    In a properties file a comment needs a line of its own. `replication.factor = 3  # three racks` is refused as not a
    number, `A->B.enabled = true # on` does not enable the pair, and text values include the comment: topics and
    addresses of that name are looked up. Kafka's own documentation shows such lines. Write the comment on the line
    above.
    """
    for file, entry in _entries(estate):
        after = remark(entry)
        if after and not (is_secret(entry.key) and not is_jaas(entry.value)):
            value = _shown(entry.key, entry.value.removesuffix(after))
            message = f"the comment after {entry.key} is part of its value"
            yield Hit(message, f"write it on the line above: {entry.key} = {value}", spot=_spot(file, entry))


@estate_rule("duplicate-key", "warning", source=_JAVA)
def duplicate_key(estate: Estate) -> Iterator[Hit]:
    """A key is present twice in one config, and only the last line counts.

    Java's Properties and Connect's JSON parser keep the last of two equal keys without an error; the first is ignored,
    wherever it is. It often happens when a recipe is pasted below an existing config. If both values are equal, nothing
    is wrong yet, but the next change may edit the ignored line. Keep one of the lines.
    """
    for file in estate.files:
        first: dict[str, Entry] = {}
        arrows = Dedicated(file.entries).clusters if file.kind == "dedicated" else ()  # `A -> B.x` has the key A
        for entry in file.entries:
            before = first.setdefault(entry.key, entry)
            if before is not entry and entry.key not in arrows:
                same = " (with the same value)" if before.value == entry.value else ""
                message = f"{entry.key} is present twice, so line {before.line}{same} is ignored"
                yield Hit(message, f"keep one {entry.key} and remove the other", spot=_spot(file, entry))
                first[entry.key] = entry


@estate_rule("blank-in-value", "warning", source="ConfigDef.parseType, Boolean.parseBoolean")
def blank_in_value(estate: Estate) -> Iterator[Hit]:
    """A trailing blank becomes part of a value that Kafka does not trim.

    Properties and JSON keep trailing blanks. Kafka trims most values when it parses them, but not all: a connector
    class with a trailing blank is not found, a connector name has it in every URL, a separator adds it to topic names,
    which Kafka refuses, and `A->B.enabled` with a trailing blank is not true for the driver that decides which pairs to
    start (where their heartbeats are disabled). Editors do not show it. Remove it.
    """
    for file in estate.files:
        keys = set(_untrimmed(file))
        for entry in file.entries:
            if entry.key in keys and entry.value != entry.value.rstrip() and not remark(entry):
                message = f"{entry.key} ends with a blank, which Kafka does not trim"
                fix = f"remove the blank: {entry.key} = {_shown(entry.key, entry.value.rstrip())}"
                yield Hit(message, fix, spot=_spot(file, entry))


def _untrimmed(file: SourceFile) -> Iterator[str]:
    yield from _UNTRIMMED if file.kind != "dedicated" else _UNTRIMMED[2:]
    if any(entry.key == "replication.policy.class" and _IDENTITY in entry.value for entry in file.entries):
        yield "source.cluster.alias"
    if file.kind == "dedicated":
        driver = Dedicated(file.entries)
        for source, target in driver.pairs():
            if not driver.beats(source, target):
                yield f"{source}->{target}.enabled"


@estate_rule(
    "null-value",
    "error",
    source="ConnectorsResource of Kafka Connect",
    seen="tests/lint/test_seen_live_start.py::test_null_value",
)
def null_value(estate: Estate) -> Iterator[Hit]:
    """Connect refuses values that are not text: null, lists, objects, and an empty name.

    A connector's config is flat text. Connect answers null with 400, `Null value can not be supplied as the
    configuration value`, a list or an object with 400 or 500, and an empty name with 400; the connector is not created,
    or stays unchanged. To use a default, leave the key out. A list is one text with commas; a nested object becomes
    several keys with dots.
    """
    for file in estate.files:
        if file.kind == "json":
            yield from (hit for entry in file.entries for hit in _refused(file, entry))


def _refused(file: SourceFile, entry: Entry) -> Iterator[Hit]:
    if entry.raw == "null":
        message, fix = "is null, which Connect refuses with 400", f"leave {entry.key} out to get its default"
    elif entry.raw.startswith("["):
        message = "is a list, which Connect does not take"
        fix = f'write one text with commas: "{entry.key}": "{_shown(entry.key, entry.value)}"'
    elif entry.raw.startswith("{"):
        message, fix = "is an object, which Connect does not accept", "write its members as keys joined by dots"
    elif entry.key == "name" and not entry.value.strip():
        message, fix = "is empty, which Connect refuses with 400", "give the connector a permanent name"
    else:
        return
    yield Hit(f"{entry.key} {message}", fix, spot=_spot(file, entry))


@estate_rule("silence-unexplained", "warning")
def silence_unexplained(estate: Estate) -> Iterator[Hit]:
    """A silence gives no reason, or names an unknown rule.

    A rule is disabled for one place with the reason why the finding is acceptable there: a comment `mm2mgr: silence
    RULE reason`, `silence: {RULE: reason}` of a flow, or the config key `mm2mgr.silence.RULE`. Without a reason, or
    with a misspelt rule, the silence has no effect. `mm2mgr lint --rules` lists the rules.
    """
    of_files = [silence for file in estate.files for silence in file.silences]
    of_subjects = [silence for subject in estate.subjects for silence in subject.silences]
    for silence in dict.fromkeys([*of_files, *of_subjects]):
        yield from _unexplained(silence)


def _unexplained(silence: Silence) -> Iterator[Hit]:
    rules = rule_ids()
    if silence.rule not in rules:
        # Only a word that is never free text is repeated: what stands there may be anything.
        near = nearest(silence.rule, rules, 0.5)
        fix = f"write {near[0]}" if near else "see the rules with: mm2mgr lint --rules"
        yield Hit(f"there is no rule '{silence.rule[:60]}', so the silence has no effect", fix, spot=silence.spot)
    elif not silence.reason:
        message = f"{silence.rule} is silenced without a reason"
        yield Hit(message, f"give the reason: mm2mgr: silence {silence.rule} BECAUSE…", spot=silence.spot)


@estate_rule("invalid-declaration", "error")
def invalid_declaration(_: Estate) -> Iterator[Hit]:
    """mm2mgr refuses something in the YAML tree.

    Every command on the tree refuses it: a misspelt key, an unknown alias, two flows of a pair that contradict each
    other, a value of the wrong type. Nothing can be planned until it is fixed, and no other rule looks at the tree
    until then. The message suggests the nearest known word where there is one. These findings come from the loader, not
    from a connector.
    """
    yield from ()
