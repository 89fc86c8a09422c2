"""Rules about what transformations, predicates and converters of Kafka need and refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from mm2mgr.formats.templates import is_open
from mm2mgr.lint.findings import Hit, file_key, rule, show, spell
from mm2mgr.lint.subject import Subject, SubjectKind
from mm2mgr.topics.java_regex import shape
from mm2mgr.truth import classes
from mm2mgr.truth.keys import Key, allowed_values, fault, is_checked, load
from mm2mgr.truth.plugins import refusal
from mm2mgr.truth.reach import numbers

_REFUSED = "Connect refuses the config"
_FAILED = "every task is FAILED when it starts"
_AT_RECORDS = "the first record fails the task"
_TYPE = re.compile(r"(?P<kind>transforms|predicates)\.(?P<alias>[^.]+)\.type")
_CONVERTERS = {"key": "converter", "value": "converter", "header": "header converter"}


@rule(
    "plugin-settings",
    "error",
    needs=("transforms.", "predicates.", ".converter."),
    source="ConfigDefs of Kafka's transformations, predicates and converters, and their `configure`",
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
    """A key with the class of a plugin, and what stands before each of its settings."""

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
    """Return the first thing that Kafka refuses of a plugin."""
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
