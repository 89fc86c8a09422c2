"""Flows + Jinja2 templates → desired connectors: flat string configs whose every key knows its origin.

In: a Topology, a folder of templates (the user's outranks mm2mgr's own). Out: `Connector` values. No network.
A template line reads `key = {{ value }}`; the line is the origin of literal text, the spec is the origin of what it inserts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import jinja2

from mm2mgr import defaults
from mm2mgr.errors import TemplateError
from mm2mgr.origins import Origin, Text
from mm2mgr.overrides import own_offsets, retarget
from mm2mgr.spec.patterns import java_list, java_pattern
from mm2mgr.template_sandbox import Environment, Loader, line_of
from mm2mgr.topology import Flow, Topology

Type = Literal["source", "checkpoint", "heartbeat"]

CLASSES: dict[Type, str] = {
    "source": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "checkpoint": "org.apache.kafka.connect.mirror.MirrorCheckpointConnector",
    "heartbeat": "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector",
}
OWNER_KEY = "mm2mgr.owner"
FLOW_KEY = "mm2mgr.flow"

_MARK = "\x01"  # around what is inserted: a path such as `target.alias`, or the number of a value
_LINE = "\x02"  # before the template line number at the end of a line
_BLOCK = "\x03"  # around the prefix and the path or number of a block of settings
_INSERTED = re.compile(rf"{_MARK}([\w.]+){_MARK}")
_BLOCKS = re.compile(rf"{_BLOCK}([^{_BLOCK}]*)={_BLOCK}([\w.]+){_BLOCK}")
_WHERE = re.compile(rf"{_LINE}([^{_LINE}]*){_LINE}")
_KEY_VALUE = re.compile(r"\s*([^\s=]+)\s*=\s*(.*?)\s*", re.DOTALL)


@dataclass(frozen=True)
class Connector:
    """One desired connector. `config` is what Connect gets, `origins` has the same keys."""

    name: str
    type: Type
    connect: str
    pair: str
    flows: tuple[str, ...]
    config: Mapping[str, str] = field(repr=False)  # may hold secrets
    origins: Mapping[str, Origin] = field(repr=False)
    state: str | None = None
    """RUNNING, PAUSED or STOPPED where the tree says it; None leaves it to people and REST. Source connectors only."""


def connector_name(pair_source: str, pair_target: str, type_: Type, flow: str = "") -> str:
    """Return the connector's name. Offsets are stored under it: another name mirrors everything again."""
    return ".".join(part for part in ("mm2", pair_source, pair_target, type_, flow) if part)


def source_connector_name(flow: Flow) -> str:
    """Return the name of the connector that mirrors a flow."""
    return connector_name(flow.source.alias, flow.target.alias, "source", flow.name)


def render(topology: Topology, templates: Path | None = None) -> tuple[Connector, ...]:
    """Render every connector of the topology, by pair: heartbeat, sources, checkpoint (the order apply uses)."""
    if templates is not None and not templates.is_dir():
        raise TemplateError(
            f"{templates}: no such folder", hint="give the folder that holds your *.properties.j2 files"
        )
    press = _Press(topology.owner, templates)
    connectors: list[Connector] = []
    for _, group in groupby(sorted(topology.flows, key=lambda flow: flow.pair), key=lambda flow: flow.pair):
        connectors += press.pair(tuple(group))
    _refuse_twins(connectors)
    return tuple(connectors)


def template_folders(own: Path | None) -> list[Path]:
    """Return where templates are looked for: the user's folder, then the one inside the package (beside it in a checkout)."""
    package = Path(__file__).parent
    shipped = package / "templates"
    return [*([own] if own else []), shipped if shipped.is_dir() else package.parent / "templates"]


def _refuse_twins(connectors: Iterable[Connector]) -> None:
    seen: dict[tuple[str, str], Connector] = {}
    for connector in connectors:
        other = seen.setdefault((connector.connect, connector.name), connector)
        if other is not connector:
            raise TemplateError(
                f"two connectors would be named '{connector.name}' on Connect cluster '{connector.connect}': "
                f"{other.pair} and {connector.pair}",
                hint="aliases that hold dots can collide: rename one",
            )


class _Loader(Loader):
    """Loads templates and marks the end of every `key = value` line with its file and line number.

    When all of them are `plain`, an expression that is only a path into the context becomes a mark with that path: what Jinja
    gives then depends on the names in conditions alone, and one rendering serves many connectors.
    """

    def __init__(self, folders: list[Path]) -> None:
        super().__init__(folders)
        self.plain = False
        self.read: dict[str, tuple[str, str, Callable[[], bool]]] = {}

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        source, path, fresh = self.as_written(environment, template)
        lines = (_with_paths(source) if self.plain else source).split("\n")
        marked = [
            f"{line}{_LINE}{template}:{number}{_LINE}" if re.match(r"\s*[\w.-]+\s*=", line) else line
            for number, line in enumerate(lines, 1)
        ]
        return "\n".join(marked), path, fresh

    def as_written(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        if template not in self.read:
            self.read[template] = super().get_source(environment, template)
        return self.read[template]

    def reachable(self, environment: jinja2.Environment, templates: Iterable[str]) -> Iterator[str]:
        """Yield the sources of templates and of all that they include by name."""
        names, seen = list(templates), set()
        while names:
            name = names.pop()
            if name not in seen:
                seen.add(name)
                source = self.as_written(environment, name)[0]
                yield source
                names += _INCLUDE.findall(source)


# A template is plain when it has nothing but conditions, includes and insertions of `path` and `settings(prefix, path)`.
_PATH = r"(?!(?:[Tt]rue|[Ff]alse|[Nn]one)\b)[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_PATH_VALUE = re.compile(rf"\{{\{{ *({_PATH}) *\}}\}}")
_PATH_BLOCK = re.compile(rf"\{{\{{ *settings\(([^{{}}]*), *({_PATH})\) *\}}\}}")
_INCLUDE = re.compile(r'\{% *include "([^"]*)" *%\}')
_PLAIN_TAG = re.compile(rf"{_INCLUDE.pattern}|\{{% *(?:if|elif|else|endif)\b[^{{}}]*%\}}")
_CODE = re.compile(r"\{[{%](.*?)[}%]\}")
_TEXT = re.compile(r'"[^"]*"')
_NAME = re.compile(r"[A-Za-z_]\w*")


def _with_paths(source: str) -> str:
    return _PATH_BLOCK.sub(r'{{ settings(\1, "\2") }}', _PATH_VALUE.sub(rf"{_MARK}\1{_MARK}", source))


def _is_plain(source: str) -> bool:
    insertions = len(_PATH_VALUE.findall(source)) + len(_PATH_BLOCK.findall(source))
    return source.count("{%") == len(_PLAIN_TAG.findall(source)) and source.count("{{") == insertions


class _Press:
    """Renders the connectors of one pair at a time."""

    def __init__(self, owner: Text, templates: Path | None) -> None:
        self.owner = owner
        self.inserted: list[Any] = []
        self.usual: dict[str, Mapping[str, Text]] = {}
        self.rendered: dict[tuple[str | None, ...], tuple[_Line, ...]] = {}
        self.folders = template_folders(templates)
        loader = _Loader(self.folders)
        self.environment = Environment(
            {"settings": self.settings},
            loader=loader,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            auto_reload=False,  # each look at the clock of a file would be made once a connector
            finalize=self.insert,
        )
        self.conditions: tuple[str, ...] | None = None
        """The names that decide what a plain template gives; None when not all of them are plain."""
        with suppress(jinja2.TemplateError):  # raised again where a connector needs that template
            sources = list(loader.reachable(self.environment, [f"{type_}.properties.j2" for type_ in CLASSES]))
            loader.plain = all(map(_is_plain, sources))
            if loader.plain:
                code = " ".join(part for source in sources for part in _CODE.findall(_with_paths(source)))
                self.conditions = tuple(sorted({*_NAME.findall(_TEXT.sub("", code))}))

    # Jinja runs a plain finalize on constants when it compiles a template, where no connector is being written.
    @jinja2.pass_eval_context
    def insert(self, _: object, value: Any) -> str:
        """Stand in for a value until the lines are read back: values may hold line ends, equals signs and blanks."""
        if isinstance(value, _Lines):
            return value
        if isinstance(value, jinja2.Undefined):
            return str(value)  # StrictUndefined raises with the name
        self.inserted.append(self.environment.inserted(value))
        return f"{_MARK}{len(self.inserted) - 1}{_MARK}"

    def settings(self, prefix: str, block: Mapping[str, str] | str) -> _Lines:
        """Stand in for one `prefix + key = value` line for each setting of a block, or of the block at a path."""
        if not isinstance(block, str):
            self.inserted.append(block)
            block = str(len(self.inserted) - 1)
        return _Lines(f"{_BLOCK}{prefix}={_BLOCK}{block}{_BLOCK}")

    def client(self, flow: Flow, block: str) -> Mapping[str, Text]:
        """Return the settings of a flow's client; those of which nobody said anything are all alike, and made once."""
        if getattr(flow.settings, block) or flow.link or flow.exactly_once:
            return flow.client(block)
        if block not in self.usual:
            self.usual[block] = flow.client(block)
        return self.usual[block]

    # --- the connectors of a pair -------------------------------------------------------------------------------------

    def pair(self, flows: tuple[Flow, ...]) -> list[Connector]:
        beating = [flow for flow in flows if flow.settings.heartbeats.enabled]
        result = [self.heartbeat(flows, beating[0])] if beating else []
        for flow in flows:
            result.append(self.source(flow, carries_heartbeats=bool(beating) and flow is beating[0]))
        checked = [flow for flow in flows if flow.settings.checkpoints.enabled and flow.settings.offset_syncs.enabled]
        if checked:
            result.append(self.checkpoint(tuple(checked)))
        return result

    def source(self, flow: Flow, *, carries_heartbeats: bool) -> Connector:
        s = flow.settings
        record_producer = {**retarget(flow, flow.target), **self.client(flow, "record_producer")}
        syncs_on = flow.source if s.offset_syncs.location == "source" else flow.target
        context = {
            "tasks_max": flow.tasks.maximum,
            "source": flow.source,
            "target": flow.target,
            "topics": flow.text(java_list(s.topics.include), "topics", "include"),
            "topics_exclude": flow.text(_with(defaults.TOPICS_EXCLUDE, s.topics.exclude), "topics", "exclude"),
            "refresh_seconds": _seconds(flow, s.refresh_interval, "refresh_interval"),
            "sync_topic_configs": flow.text(s.sync.topic_configs, "sync", "topic_configs"),
            "sync_topic_acls": flow.text(s.sync.topic_acls, "sync", "topic_acls"),
            "exclude_properties": flow.text(
                _with(defaults.PROPERTIES_EXCLUDE, s.sync.exclude_properties), "sync", "exclude_properties"
            ),
            "carries_heartbeats": Text(
                "true" if carries_heartbeats else "false",
                Origin("default", "mm2mgr: exactly one source connector of a pair carries its heartbeats"),
            ),
            "offset_syncs_enabled": flow.text(s.offset_syncs.enabled, "offset_syncs", "enabled"),
            "offset_syncs_location": flow.text(s.offset_syncs.location, "offset_syncs", "location"),
            "offset_syncs_replication_factor": syncs_on.replication_factor,
            "record_producer": record_producer,
            **{block: self.client(flow, block) for block in ("source_consumer", "source_admin", "target_admin")},
            "offset_syncs_producer": self.client(flow, "offset_syncs_producer"),
            "exactly_once": {"exactly.once.support": flow.text("required", "delivery")} if flow.exactly_once else {},
            **own_offsets(flow, flow.target, "source_connector"),
        }
        return self.connector("source", flow, (flow,), context)

    def checkpoint(self, flows: tuple[Flow, ...]) -> Connector:
        """One for the pair. Settings come from its first flow; the topics and groups of all its flows are taken together."""
        first, s = flows[0], flows[0].settings
        topics, topics_exclude = _together(
            [(flow.settings.topics.include, flow.settings.topics.exclude) for flow in flows], defaults.TOPICS_EXCLUDE
        )
        groups, groups_exclude = _together(
            [(f.settings.checkpoints.groups.include, f.settings.checkpoints.groups.exclude) for f in flows],
            defaults.GROUPS_EXCLUDE,
        )
        every = min((flow for flow in flows), key=lambda flow: flow.settings.checkpoints.interval)
        syncing = next((flow for flow in flows if flow.settings.checkpoints.group_offsets), first)
        context = {
            "tasks_max": Text("1", Origin("default", "mm2mgr: one task serves many groups")),
            "source": first.source,
            "target": first.target,
            "topics": flows[0].text(topics, "topics", "include"),
            "topics_exclude": flows[0].text(topics_exclude, "topics", "exclude"),
            "groups": flows[0].text(groups, "checkpoints", "groups", "include"),
            "groups_exclude": flows[0].text(groups_exclude, "checkpoints", "groups", "exclude"),
            "refresh_seconds": _seconds(first, s.refresh_interval, "refresh_interval"),
            "checkpoint_seconds": _seconds(every, every.settings.checkpoints.interval, "checkpoints", "interval"),
            "group_offsets": syncing.text(syncing.settings.checkpoints.group_offsets, "checkpoints", "group_offsets"),
            "offset_syncs_location": first.text(s.offset_syncs.location, "offset_syncs", "location"),
            "record_producer": retarget(first, first.target),
            **{block: self.client(first, block) for block in ("source_admin", "target_admin", "target_consumer")},
            **own_offsets(first, first.target, "checkpoint_connector"),
        }
        return self.connector("checkpoint", first, flows, context)

    def heartbeat(self, flows: tuple[Flow, ...], flow: Flow) -> Connector:
        every = flow.settings.heartbeats.interval
        context = {
            "tasks_max": Text("1", Origin("default", "mm2mgr: a heartbeat connector never has more")),
            "source": flow.target,
            "target": flow.source,
            "heartbeat_seconds": _seconds(flow, every, "heartbeats", "interval"),
            "record_producer": retarget(flow, flow.source),
            "target_admin": self.client(flow, "source_admin"),
            **own_offsets(flow, flow.source, "heartbeat_connector"),
        }
        return self.connector("heartbeat", flow, flows, context)

    def connector(self, type_: Type, flow: Flow, flows: tuple[Flow, ...], context: dict[str, Any]) -> Connector:
        name = connector_name(flow.source.alias, flow.target.alias, type_, flow.name if type_ == "source" else "")
        policy = flow.settings.replication_policy
        context |= {
            "name": Text(name, Origin("default", "mm2mgr: made from the aliases and the flow")),
            "connector_class": CLASSES[type_],
            "owner": self.owner,
            "flows": Text(",".join(one.id for one in flows), Origin("default", "mm2mgr: the flows it serves")),
            "policy": flow.text(defaults.POLICIES.get(policy, policy), "replication_policy"),
            "separator": flow.text(flow.settings.separator, "separator"),
        }
        config, origins = self.printed(f"{type_}.properties.j2", context, name)
        _refuse_changes(name, config, {"name": name, OWNER_KEY: str(self.owner)}, type_)
        if type_ == "source" and flow.exactly_once and config.get("exactly.once.support") != "required":
            raise TemplateError(
                f"source.properties.j2, connector '{name}': it leaves exactly.once.support = required out",
                hint='write {{ settings("", exactly_once) }}, as the shipped template does, or delivery: at_least_once',
            )
        wished = flow.settings.state if type_ == "source" else None
        state = wished.upper() if wished else None
        return Connector(name, type_, flow.connect.name, flow.pair, tuple(f.id for f in flows), config, origins, state)

    def printed(self, template: str, context: dict[str, Any], name: str) -> tuple[dict[str, str], dict[str, Origin]]:
        config: dict[str, str] = {}
        origins: dict[str, Origin] = {}
        at = template
        self.environment.begin()
        try:
            for line in self.lines(template, context):
                at = line.at
                if line.is_block:
                    block = self.value(line.inserted[0], context)
                    found = [(line.key + key, value) for key, value in block.items()]
                else:
                    found = [(line.key, self.read_back(line, context) if line.inserted else line.parts[0])]
                for key, value in found:
                    if key in config:
                        raise TemplateError(
                            f"{line.at}, connector '{name}': the key '{key}' is written twice",
                            hint=f"it came from {origins[key]} already; remove it from the flow's *_connector block or from the template",
                        )
                    config[key] = str(value)
                    origins[key] = value.origin if type(value) is Text else line.origin
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"{error.name or template}:{error.lineno}: {error.message}") from error
        except (  # what an expression in it may raise, and what Python says of code that nests too deeply
            jinja2.TemplateError,
            *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
            *(RecursionError, MemoryError, SyntaxError),
        ) as error:
            at = line_of(error, self.folders, at)
            raise TemplateError(f"{at}, connector '{name}': {type(error).__name__}: {error}") from error
        return config, origins

    def lines(self, template: str, context: dict[str, Any]) -> tuple[_Line, ...]:
        """Return the lines of a rendered template; when only texts decide what it gives, it is rendered once for the same texts."""
        deciding = [context.get(name) for name in self.conditions or ()]
        key = (template, *(value for value in deciding if isinstance(value, str | None)))
        alike = self.conditions is not None and len(key) == 1 + len(deciding)
        if not alike or key not in self.rendered:
            self.inserted.clear()
            self.rendered[key] = _read(self.environment.get_template(template).render(context), template)
        return self.rendered[key]

    def read_back(self, line: _Line, context: dict[str, Any]) -> object:
        """Return the value of a line; one of several parts takes the origin of its first inserted value that has one."""
        if line.alone:
            return self.value(line.inserted[0], context)
        values = [self.value(path, context) for path in line.inserted]
        parts: list[str] = [*line.parts]
        parts[1::2] = map(str, values)
        return Text("".join(parts), next((value.origin for value in values if isinstance(value, Text)), line.origin))

    def value(self, path: tuple[str, ...], context: dict[str, Any]) -> Any:
        """Return what stands at a path in the context, or the inserted value of that number."""
        root = path[0]
        if root in context:
            value = context[root]
        else:
            value = self.inserted[int(root)] if root.isdigit() else self.environment.undefined(name=root)
        for attribute in path[1:]:
            value = self.environment.getattr(value, attribute)
        if isinstance(value, jinja2.Undefined):
            str(value)  # StrictUndefined raises with the name
        return value


@dataclass(frozen=True)
class _Line:
    """A rendered line with the paths of what is inserted: `parts` is text, path, text, … of the value, or it `is_block`."""

    at: str
    origin: Origin
    key: str  # of a block: the prefix of its keys
    parts: tuple[str, ...]
    inserted: tuple[tuple[str, ...], ...]
    alone: bool = False  # the value is one inserted one and nothing else
    is_block: bool = False


@lru_cache(maxsize=256)  # values are numbers here, so the connectors of a type mostly give one and the same text
def _read(text: str, template: str) -> tuple[_Line, ...]:
    return tuple(found for line in text.split("\n") for found in _read_line(line, template))


def _read_line(line: str, template: str) -> Iterator[_Line]:
    where = _WHERE.search(line)
    body = (_WHERE.sub("", line) if where else line).strip()
    at = where[1] if where else template
    origin = Origin("template", at)
    if not body or body.startswith("#"):
        return
    if not _BLOCKS.sub("", body):
        for prefix, path in _BLOCKS.findall(body):
            yield _Line(at, origin, prefix, (), (tuple(path.split(".")),), is_block=True)
        return
    found = _KEY_VALUE.fullmatch(body)
    if not found or _BLOCK in body:
        raise TemplateError(f"{at}: not a `key = value` line: {body[:60]!r}")
    parts = tuple(_INSERTED.split(found[2]))
    inserted = tuple(tuple(path.split(".")) for path in parts[1::2])
    yield _Line(at, origin, found[1], parts, inserted, alone=len(inserted) == 1 and parts[0] == parts[2] == "")


class _Lines(str):
    """Rendered `key = value` lines."""

    __slots__ = ()


def _refuse_changes(name: str, config: Mapping[str, str], needed: Mapping[str, str], type_: Type) -> None:
    for key, value in needed.items():
        if config.get(key) != value:
            raise TemplateError(
                f"{type_}.properties.j2, connector '{name}': the template must write {key} = {value}",
                hint="ownership and names are how mm2mgr finds its connectors again",
            )


def _seconds(flow: Flow, value: float, *path: str) -> Text:
    return flow.text(max(1, round(value)), *path)


def _with(always: Iterable[str], more: Iterable[str]) -> str:
    return ",".join([*always, *map(java_pattern, more)])


def _together(filters: list[tuple[list[str], list[str]]], always: Iterable[str]) -> tuple[str, str]:
    """Join the filters of several flows: one flow's exclude must not take away what another includes."""
    if len(filters) == 1:
        return java_list(filters[0][0]), _with(always, filters[0][1])
    parts = dict.fromkeys(
        f"(?!(?:{'|'.join(map(java_pattern, exclude))})$)(?:{'|'.join(map(java_pattern, include))})"
        if exclude
        else "|".join(map(java_pattern, include))
        for include, exclude in filters
    )
    return ",".join(parts), ",".join(always)
