"""Rules about transformations, predicates and converters: what MirrorMaker's bytes and names bear, what they need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from mm2mgr.defaults import POLICIES
from mm2mgr.formats.templates import is_open
from mm2mgr.lint.findings import Edit, Hit, edit_hit, file_key, removal_hit, rule, show, spell
from mm2mgr.lint.subject import Subject, SubjectKind
from mm2mgr.lint.target_names import KAFKAS, naming_of, routers
from mm2mgr.text import nearest
from mm2mgr.topics.java_regex import shape
from mm2mgr.truth import classes
from mm2mgr.truth.classes import refusal
from mm2mgr.truth.keys import Key, allowed_values, fault, is_checked, load
from mm2mgr.truth.reach import numbers

_LIVE = "tests/lint/test_seen_live_records.py::"
_RENAMING = re.compile(r"\w*(RegexRouter|TimestampRouter|TopicRouter|TableRouter|EventRouter|ExtractTopic)")
# Kafka's transformations that come as $Key and $Value, and what each does with bytes.
_STRUCT = "needs a Struct with fields, and MirrorMaker's records are bytes"
_OTHER_TYPE = "makes something else than bytes, which ByteArrayConverter refuses"
_OF_BYTES = {
    **dict.fromkeys(("ExtractField", "Flatten", "HeaderFrom", "InsertField", "MaskField", "ReplaceField"), _STRUCT),
    "SetSchemaMetadata": "changes only schemas of Structs, and MirrorMaker's records are bytes",
    "TimestampConverter": "needs a timestamp, and MirrorMaker's records are bytes",
    "HoistField": _OTHER_TYPE,
    "Cast": _OTHER_TYPE,
}
_SIMPLE = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
_WHOLE = {"ValueToKey": _STRUCT, "InsertHeader": "adds text, which ByteArrayConverter refuses for headers"}
_FINE = ("DropHeaders", "Filter", "RegexRouter", "TimestampRouter")
_JUDGED = (*_OF_BYTES, *_WHOLE, *_FINE)
_PASS_NULL = ("Cast", "Flatten", "InsertField", "ReplaceField")
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


@rule(
    "transform-needs-fields",
    "error",
    "Kafka's transformations, tried with MirrorMaker's records",
    needs=("transforms",),
)
def transform_needs_fields(subject: Subject) -> Iterator[Hit]:
    """A transformation cannot work on bytes, so the first record fails the task.

    MirrorMaker passes keys, values and headers as bytes. Transformations that look at fields throw "Only Struct objects
    supported": ExtractField, Flatten, HeaderFrom, InsertField, MaskField, ReplaceField, ValueToKey and, in other words,
    SetSchemaMetadata and TimestampConverter. HoistField, Cast and InsertHeader make a Struct or a text, which
    ByteArrayConverter refuses. The connector is RUNNING and each task FAILED (with errors.tolerance=all each record is
    skipped). Without $Key or $Value such a class is abstract and Connect refuses the config. RegexRouter,
    TimestampRouter, Filter, DropHeaders and all predicates work on any record. Classes that are not Kafka's are not
    judged.
    """
    for name in subject.items("transforms"):
        key = f"transforms.{name}.type"
        wrong = _wrong(subject, name)
        if wrong and not wrong.startswith("write "):
            more = _TEXT_HEADERS if wrong.startswith("InsertHeader ") else ""
            yield _removal(subject, name, f"{file_key(subject, key)}: {wrong}", more)
        elif wrong:
            right = wrong.removeprefix("write ")
            effect = "Connect refuses the config"
            message = f"{file_key(subject, key)}: Kafka has no transformation {subject.get(key)}: {effect}"
            yield edit_hit(subject, message, [Edit(key, right)], key)


_TEXT_HEADERS = (
    f", or write header.converter={_SIMPLE}, which makes text of all other headers, too; where a Filter looks for "
    "this header, it may be all that ends a loop"
)


def _wrong(subject: Subject, name: str) -> str:
    """Return what is wrong with a transformation, `write …` for a better name, "" for nothing."""
    type_ = subject.get(f"transforms.{name}.type")
    package, _, class_ = type_.rpartition(".")
    simple, _, part = class_.partition("$")
    if f"{package}." != KAFKAS and (package or simple not in _JUDGED):
        return ""
    if simple not in _JUDGED:
        return f"write {KAFKAS}{(*nearest(simple, _JUDGED, 0.5), 'DropHeaders')[0]}"
    if simple in _OF_BYTES and (not part or not package or part not in ("Key", "Value")):
        lacks = "its package is not found" if part and not package else "$Key or $Value is abstract"
        return f"{simple} without {lacks}, and Connect refuses it; otherwise it {_OF_BYTES[simple]}"
    reason = _OF_BYTES.get(simple) or _WHOLE.get(simple, "")
    other_bytes = {"InsertHeader": "header"}.get(simple, part.lower() if reason == _OTHER_TYPE else "")
    if not reason or _is_spared(subject, name, simple, part) or (other_bytes and not _as_bytes(subject, other_bytes)):
        return ""
    chosen = " that its predicate selects" if subject.get(f"transforms.{name}.predicate") else ""
    which = f"record{' with a key' if part == 'Key' else ''}{chosen}"
    skipped = subject.get("errors.tolerance").lower() == "all"
    effect = f"each {which} is skipped and lost" if skipped else f"the first {which} fails the task"
    return f"{simple} {reason}: {effect}"


def _is_spared(subject: Subject, name: str, simple: str, part: str) -> bool:
    """Tell whether it gets tombstones only, which it passes on as they are."""
    predicate = subject.get(f"transforms.{name}.predicate")
    of_tombstones = subject.get(f"predicates.{predicate}.type").endswith("RecordIsTombstone")
    negated = subject.flag(f"transforms.{name}.negate", default=False)
    return part == "Value" and simple in _PASS_NULL and of_tombstones and not negated


def _as_bytes(subject: Subject, part: str) -> bool:
    """Tell whether ByteArrayConverter writes keys, values or headers; `converter` reports any other."""
    key = f"{part}.converter"
    usual = _BYTES if subject.form == "dedicated" else ""
    return (subject.get(key) or subject.worker_property(key) or usual).endswith("ByteArrayConverter")


def _removal(subject: Subject, name: str, message: str, more: str = "") -> Hit:
    others = [other for other in subject.items("transforms") if other != name]
    own = (key for key in subject.config if key.startswith(f"transforms.{name}."))
    edits = (Edit("transforms", ",".join(others) or None), *(Edit(key, None) for key in own))
    fix = f"remove the transformation '{name}'{more}"
    return Hit(message, fix, f"transforms.{name}.type", edits=edits)


@rule("transform-renames", "error", "MirrorSourceConnector, KIP-382", needs=("transforms",), live=_LIVE)
def transform_renames(subject: Subject) -> Iterator[Hit]:
    """A transformation writes records to another topic than the one MirrorMaker manages.

    MirrorMaker creates the topic that its replication policy names, gives it partitions, settings and ACLs, and
    translates offsets for it. A router such as RegexRouter changes the name after that: records go to a topic that the
    target creates with its own defaults or not at all, partitions may be missing (the task then blocks), the prepared
    topic stays empty, and checkpoints point at it. Checkpoints and heartbeats in a topic of another name are never
    found. Name topics with replication.policy.class instead. An expression that is the name of no topic renames nothing
    (warning).
    """
    for name in subject.items("transforms"):
        key = f"transforms.{name}.type"
        if any(_RENAMING.fullmatch(part) for part in re.split(r"[.$]", subject.get(key))):
            if _renames_nothing(subject, name):
                outcome = "topics on the target: it renames nothing"
                message = (
                    f"{file_key(subject, key)}: transforms.{name}.regex is the whole name of none of the {outcome}"
                )
                yield _removal(subject, name, message).with_severity("warning")
                continue
            effect = (
                "records to another topic than the one that MirrorMaker creates, configures and translates offsets for"
            )
            if subject.type != "source":
                effect = f"{subject.type}s to another topic than the one where they are looked for"
            message = f"{file_key(subject, key)}={subject.get(key)} writes {effect}"
            policy = spell(subject, "replication.policy.class", POLICIES["identity"])
            silence = "; or, where consumers read these names, write silence: {transform-renames: why}"
            more = f"{silence if subject.form == 'tree' else ''}; to keep topic names use {policy}"
            yield _removal(subject, name, message, more)


def _renames_nothing(subject: Subject, name: str) -> bool:
    """Tell whether all its topics are known by name, and a router leaves each of them as the policy names it."""
    topics = subject.items("topics")
    if subject.type != "source" or name not in routers(subject) or not all(map(_TOPIC.fullmatch, topics)):
        return False
    naming = naming_of(subject)
    at = routers(subject).index(name)
    before, behind = replace(naming, steps=naming.steps[:at]), replace(naming, steps=naming.steps[: at + 1])
    return bool(topics) and all(before(topic) == behind(topic) for topic in (*topics, "heartbeats"))


_TOPIC = re.compile(r"[\w-]+")  # a pattern of no other name


@rule("filter-drops-all", "error", "KIP-585", needs=("transforms",), live=_LIVE)
def filter_drops_all(subject: Subject) -> Iterator[Hit]:
    """A Filter without a predicate drops every record.

    Kafka's Filter has no condition of its own: it drops each record that reaches it, and its predicate decides which do
    (KIP-585). Without one nothing arrives on the target, while the connector is RUNNING. Connect stores no offsets of
    dropped records, so after the fix they are read again, unless retention has deleted them meanwhile. Seen on 4.3.1:
    30 records in, 0 out.
    """
    for name in subject.items("transforms"):
        key, predicate = f"transforms.{name}.type", f"transforms.{name}.predicate"
        if subject.get(key) in (f"{KAFKAS}Filter", "Filter") and predicate not in subject.config:
            effect = "a Filter without a predicate drops every record, and the connector is RUNNING"
            message = f"{file_key(subject, key)}: {effect}"
            remedy = f"dropped, or remove '{name}'"
            fix = f"write {spell(subject, predicate, '…')} with the predicate for what is to be {remedy}"
            yield Hit(message, fix, key)


@rule(
    "transform-incomplete",
    "error",
    "KIP-66, KIP-585, ConnectorConfig.enrich",
    stops=True,
    needs=("transforms", "predicates"),
    live=f"{_LIVE}test_filter_drops_all",
)
def transform_incomplete(subject: Subject) -> Iterator[Hit]:
    """A transformation or a predicate lacks a part, so Connect refuses the config or the task fails.

    Each alias in transforms and in predicates needs its type, and `negate` needs a predicate: Connect refuses the
    config (400). A predicate that a transformation names and predicates does not list is not checked: Connect accepts
    the config, and every task is FAILED with "Unknown configuration 'predicates.NAME.…'". Source:
    ConnectorConfig.transformationStages.
    """
    if subject.scopes.get("transforms") == ():
        return  # top-level-ignored reports the settings that the driver does not pass on with the list
    predicates = subject.items("predicates")
    for kind, aliases in (("transforms", subject.items("transforms")), ("predicates", predicates)):
        for alias in filter(None, dict.fromkeys(aliases)):
            key = f"{kind}.{alias}.type"
            if not subject.get(key) and not is_open(alias):
                message = f"{file_key(subject, kind)} lists '{alias}', and {key} is not set: Connect refuses the config"
                yield Hit(message, f"write {spell(subject, key)}, or remove '{alias}' from the list", kind)
    for name in subject.items("transforms"):
        key, negate = f"transforms.{name}.predicate", f"transforms.{name}.negate"
        predicate = subject.get(key)
        if negate in subject.config and key not in subject.config:
            message = f"{file_key(subject, negate)} is set without {key}: Connect refuses the config"
            yield removal_hit(subject, negate, message, f", or write {spell(subject, key)}")
        elif key in subject.config and predicate not in predicates and not is_open(predicate):
            effect = "predicates does not list it, so every task is FAILED when it starts"
            message = f"{file_key(subject, key)}={predicate}: {effect}"
            if not predicate:
                yield Hit(message, f"write the name of a predicate, or remove {file_key(subject, key)}", key)
            elif subject.get(f"predicates.{predicate}.type"):
                yield edit_hit(subject, message, [Edit("predicates", ",".join([*predicates, predicate]))], key)
            else:
                near = nearest(predicate, predicates, 0.6)
                fix = (
                    f"write {spell(subject, key, near[0])}"
                    if near
                    else f"declare it: {_declaration(subject, predicate)}"
                )
                yield Hit(message, fix, key)


def _declaration(subject: Subject, predicate: str) -> str:
    return f"{spell(subject, 'predicates', predicate)}, {spell(subject, f'predicates.{predicate}.type')}"


@rule("transform-unlisted", "warning", "KIP-66, KIP-585", needs=("transforms.", "predicates."))
def transform_unlisted(subject: Subject) -> Iterator[Hit]:
    """A transformation or a predicate is configured and never runs.

    Connect runs the transformations that `transforms` lists, and asks the predicates that these name. Settings of any
    other alias (transforms.mask.* where the list has mask2, or no list) are stored and ignored, without an error:
    records pass unchanged, which may be more than is wanted. A predicate that no transformation names is a hint.
    """
    transforms = subject.items("transforms")
    asked = [subject.get(f"transforms.{name}.predicate") for name in transforms]
    if is_open(subject.get("transforms")) or ("transforms" in subject.config and not transforms):
        return  # an empty list says that they are switched off
    for alias, key in _aliases(subject, "transforms"):
        if alias not in transforms:
            near = [name for name in nearest(alias, transforms, 0.6) if not subject.get(f"transforms.{name}.type")]
            fix = f"write transforms.{near[0]}.* for transforms.{alias}.*" if near else f"add '{alias}' to transforms"
            message = f"{file_key(subject, key)} does nothing: Connect runs only what transforms lists"
            yield Hit(message, f"{fix}, or remove its settings", key)
    for alias, key in _aliases(subject, "predicates"):
        if alias not in asked:
            message = f"{file_key(subject, key)} does nothing: no transformation names this predicate"
            fix = f"write {spell(subject, 'transforms.….predicate', alias)}, or remove its settings"
            yield Hit(message, fix, key, severity="info")


def _aliases(subject: Subject, kind: str) -> Iterator[tuple[str, str]]:
    first: dict[str, str] = {}
    for key in subject.config:
        if key.startswith(f"{kind}."):
            first.setdefault(key.split(".")[1], key)
    yield from first.items()


_REFUSED = "Connect refuses the config"
_FAILED = "every task is FAILED when it starts"
_AT_RECORDS = "the first record fails the task"
_TYPE = re.compile(r"(?P<kind>transforms|predicates)\.(?P<alias>[^.]+)\.type")
_CONVERTERS = {"key": "converter", "value": "converter", "header": "header converter"}


@rule(
    "plugin-settings",
    "error",
    "ConfigDefs of Kafka's transformations, predicates and converters, and their `configure`",
    needs=("transforms.", "predicates.", ".converter."),
)
def plugin_settings(subject: Subject) -> Iterator[Hit]:
    """A transformation, a predicate or a converter cannot work with its settings.

    Each of them defines settings of its own behind its alias or key: transforms.ALIAS.regex, predicates.ALIAS.pattern,
    value.converter.schemas.enable. Connect validates those of transformations and predicates when the config is
    submitted: what is missing, or not valid, is a 400. What their code checks when they are made is found by each task,
    which is then FAILED: InsertField without a field, TimestampConverter to a string without a format, HeaderFrom with
    lists that differ in length, a pattern that SimpleDateFormat does not know. The rule uses the definitions of the
    workers' Kafka line. Classes that are not Kafka's are not judged.
    """
    for plugin in _plugins(subject.kind):
        if plugin.alias and plugin.alias not in subject.items(plugin.listed):
            continue  # transform-unlisted reports that it never runs
        name = classes.own_class(plugin.purpose, subject.get(plugin.key), subject.version)
        if name and (hit := _first(subject, plugin, name)):
            yield hit


@dataclass(frozen=True)
class _Plugin:
    key: str
    prefix: str
    purpose: str
    listed: str = ""
    alias: str = ""


@lru_cache(maxsize=4096)
def _plugins(kind: SubjectKind) -> tuple[_Plugin, ...]:
    purposes = {"transforms": "transformation", "predicates": "predicate"}
    plugins = [
        _Plugin(key, key.removesuffix("type"), purposes[match["kind"]], match["kind"], match["alias"])
        for key in kind.keys
        if (match := _TYPE.fullmatch(key))
    ]
    for part, purpose in _CONVERTERS.items():
        key = f"{part}.converter"
        if key in kind.keys and any(other.startswith(f"{key}.") for other in kind.keys):
            plugins.append(_Plugin(key, f"{key}.", purpose))
    return tuple(plugins)


def _first(subject: Subject, plugin: _Plugin, name: str) -> Hit | None:
    definitions = load().settings(name, subject.version)
    settings = {
        definition.name: subject.get(plugin.prefix + definition.name)
        for definition in definitions
        if plugin.prefix + definition.name in subject.config
    }
    validated = _REFUSED if plugin.alias or numbers(subject.version) >= _VALIDATED else _FAILED
    if lacking := [
        definition.name for definition in definitions if definition.required and definition.name not in settings
    ]:
        keys = [plugin.prefix + definition for definition in lacking]
        message = f"{file_key(subject, plugin.key)}={subject.get(plugin.key)} needs {' and '.join(keys)}: {validated}"
        return Hit(message, f"write {', '.join(spell(subject, key) for key in keys)}", plugin.key)
    for definition in definitions:
        value = settings.get(definition.name, "")
        if definition.name in settings and not is_open(value) and (wrong := _fault(definition, subject.version, value)):
            key = plugin.prefix + definition.name
            message = f"{file_key(subject, key)}={show(subject, key)} is {wrong}: {validated}"
            return Hit(message, f"write {allowed_values(definition)} for {file_key(subject, key)}", key)
    return _by_code(subject, plugin, name, settings, validated)


_VALIDATED = (3, 8)  # from here on Connect validates settings of converters, too


def _fault(definition: Key, version: str, value: str) -> str:
    if is_checked(definition) and (wrong := fault(definition.scope, definition.name, version, value)):
        return wrong
    if "a regular expression" in definition.valid:
        try:
            shape(value)
        except ValueError as error:
            return f"not a Java regular expression, {error}"
    return ""


def _by_code(subject: Subject, plugin: _Plugin, name: str, settings: Mapping[str, str], validated: str) -> Hit | None:
    reason = refusal(name.rpartition(".")[2].partition("$")[0], settings, numbers(subject.version)[:2])
    if reason is None or any(map(is_open, settings.values())):
        return None
    key = plugin.prefix + reason.setting
    effect = {"validation": validated, "start": _FAILED, "record": _AT_RECORDS}[reason.by]
    message = f"{file_key(subject, key)}={show(subject, key)} {reason.wrong}: {effect}"
    return Hit(message, f"correct {file_key(subject, key)}, or remove '{plugin.alias or plugin.key}'", key)
