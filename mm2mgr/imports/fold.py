"""Folds settings of many pairs into few lines: what pairs share stands once, and below them only what differs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from mm2mgr import defaults
from mm2mgr.imports.settings import DEFAULTS, Path, Settings

ABSENT = object()
_SWITCHES = ("checkpoints", "heartbeats", "offset_syncs")
_CLIENTS = (*defaults.CLIENT_DEFAULTS, "target_consumer")
_OF_SWITCH = {
    "target_consumer": "checkpoints",
    "checkpoint_connector": "checkpoints",
    "heartbeat_connector": "heartbeats",
}
_OWN_KEYS = ("source_connector", "checkpoint_connector", "heartbeat_connector")
_SHARED_BLOCKS = ("source_admin", "target_admin", "target_consumer", "checkpoint_connector", "heartbeat_connector")
_OWN_DEFAULTS = {key for block in defaults.METRIC_NAMES_DEFAULTS.values() for key in block} | {"offsets.storage.topic"}
_NEVER_SHARED = {("connector_name",), ("checkpoints", "connector_name"), ("heartbeats", "connector_name")}


@dataclass
class FoldedFlow:
    """A declared flow: sources × targets less `missing`, its settings, and those of single pairs."""

    name: str
    sources: list[str]
    targets: list[str]
    missing: list[str]
    settings: Settings = field(default_factory=dict)
    pairs: dict[str, Settings] = field(default_factory=dict)


def fold_pairs(name: str, settings: Mapping[tuple[str, str], Settings]) -> FoldedFlow:
    """Fold the settings of a flow's pairs (source and target) into one entry of `flows:`."""
    sources = list(dict.fromkeys(source for source, _ in settings))
    targets = list(dict.fromkeys(target for _, target in settings))
    every = [(source, target) for target in targets for source in sources]
    missing = [f"{source}->{target}" for source, target in every if (source, target) not in settings]
    own = {f"{source}->{target}": dict(of_pair) for (source, target), of_pair in settings.items()}
    shared = share_settings(own)
    for of_pair in own.values():
        _imply_switches(of_pair, shared)
    return FoldedFlow(name, sources, targets, missing, shared, {pair: own[pair] for pair in own if own[pair]})


def fold_flows(flows: Sequence[FoldedFlow]) -> Settings:
    """Move what several flows share to `defaults: {flows: …}` and return it."""
    if len(flows) < 2:
        return {}
    own = {flow.name: flow.settings for flow in flows}
    in_use = {
        flow.name: {
            switch
            for switch in _SWITCHES
            if any(settings.get((switch, "enabled")) is True for settings in flow.pairs.values())
        }
        for flow in flows
    }
    shared = share_settings(own, 2, in_use)
    for flow in flows:
        _imply_switches(flow.settings, shared)
    return shared


def share_settings(
    own: dict[str, Settings], least: int = 1, in_use: Mapping[str, Collection[str]] | None = None
) -> Settings:
    """Return the values that most have, and leave in each only what is another one.

    With several owners a value is shared only where `least` have it. A disabled block says nothing of its settings.
    """
    shared: Settings = {}
    before = {name: dict(settings) for name, settings in own.items()}
    paths = dict.fromkeys(path for settings in own.values() for path in settings)
    for path in paths:
        if (path in _NEVER_SHARED and len(own) > 1) or (path[0] == "topics" and least > 1):
            continue  # by its topics a flow is known
        values = {
            name: settings.get(path, ABSENT)
            for name, settings in own.items()
            if not _is_open(before[name], path, (in_use or {}).get(name, ()))
        }
        chosen = _choose(path, list(values.values()), min(least, len(own)))
        if chosen is ABSENT:
            continue
        shared[path] = chosen
        for name, settings in own.items():
            if name not in values or settings.get(path, ABSENT) == chosen:
                settings.pop(path, None)
            elif path not in settings:
                settings[path] = neutral_value(path)
    for settings in own.values():
        for path in [path for path, value in settings.items() if path not in shared and is_default(path, value)]:
            if path[1:] != ("enabled",):
                del settings[path]
    for path in [path for path, value in shared.items() if is_default(path, value)]:
        if path[1:] != ("enabled",):
            del shared[path]
    return shared


def _is_open(settings: Settings, path: Path, in_use: Collection[str]) -> bool:
    """Tell whether a setting decides nothing, since what it belongs to is switched off, and not `in_use` below."""
    if path[0] == "verbatim" and path[1] in ("checkpoint", "heartbeat"):
        switch = f"{path[1]}s"
    else:
        switch = _OF_SWITCH.get(path[0], path[0] if path[1:] != ("enabled",) else "")
    return switch in _SWITCHES and switch not in in_use and settings.get((switch, "enabled")) is False


def _choose(path: Path, values: list[object], least: int) -> object:
    counts: list[tuple[int, object]] = []
    for value in values:
        if not any(value is other or value == other for _, other in counts):
            counts.append((sum(value == other for other in values), value))
    count, chosen = max(counts, key=lambda counted: counted[0], default=(0, ABSENT))
    if chosen is ABSENT or count < least:
        return ABSENT
    if count < len(values) and (neutral_value(path) is ABSENT and ABSENT in values):
        return ABSENT
    return chosen


def neutral_value(path: Path) -> object:
    """Return what to write where an upper level has a value and here is none; ABSENT where nothing says that."""
    if path in DEFAULTS:
        return DEFAULTS[path]
    if path[0] in _SHARED_BLOCKS:
        return ABSENT  # flows of a pair must agree on it as it is written
    if path[0] in _CLIENTS:
        return _client_default(path)
    return None if path[0] == "source_connector" and path[1] not in _OWN_DEFAULTS else ABSENT


def _client_default(path: Path) -> object:
    return defaults.CLIENT_DEFAULTS.get(path[0], {}).get(path[1], (None, ""))[0]


def is_default(path: Path, value: object) -> bool:
    """Tell whether a value is what a flow has without it."""
    if path in DEFAULTS:
        return DEFAULTS[path] == value
    if path[0] in _CLIENTS:
        return _client_default(path) == value
    return path[0] in _OWN_KEYS and value is None and path[1] not in _OWN_DEFAULTS


def _imply_switches(settings: Settings, above: Settings) -> None:
    """Write `enabled: false` beside other settings of a block that is off above: these alone would enable it."""
    for block in _SWITCHES:
        has_more = any(path[0] == block and path[1:] != ("enabled",) for path in settings)
        if has_more and (block, "enabled") not in settings and above.get((block, "enabled")) is False:
            settings[block, "enabled"] = False


def nest_settings(settings: Settings, order: Callable[[Path], object] | None = None) -> dict[str, object]:
    """Return flat settings as nested mappings, `enabled: false` alone in its short form."""
    result: dict[str, object] = {}
    for path in sorted(settings, key=order) if order else settings:  # type: ignore[arg-type]
        below: dict[str, object] = result
        for key in path[:-1]:
            inner = below.setdefault(key, {})
            assert isinstance(inner, dict)
            below = inner
        below[path[-1]] = settings[path]
    for block in _SWITCHES:
        value = result.get(block)
        if isinstance(value, dict) and value.keys() == {"enabled"}:
            result[block] = value["enabled"]
    return result
