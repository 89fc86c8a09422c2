"""What the flows of a pair share: its internal topics, one checkpoint and one heartbeat connector. What one of them
says of these holds for the pair; what two say otherwise is a contradiction. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from mm2mgr.secrets import mask
from mm2mgr.spec.files import Spec, inline_yaml
from mm2mgr.spec.places import PathKey
from mm2mgr.text import few
from mm2mgr.topology import Flow, by_pair

# What lands on shared topics and connectors comes from one of the flows, so another flow's setting would be lost in
# silence. Names of topics do not follow another flow: they would change for what is mirrored already.
_NAMES_OF_TOPICS = ("replication_policy", "separator")
_OF_PAIR = (*_NAMES_OF_TOPICS, "offset_syncs", "failover")
_OF_CHECKPOINTS = (
    *("checkpoint_connector", "target_consumer", "source_admin", "target_admin", "refresh_interval"),
    "verbatim.checkpoint",
    *("checkpoints.group_offsets", "checkpoints.interval", "checkpoints.connector_name"),
)
_OF_HEARTBEATS = (
    *("heartbeat_connector", "heartbeats.interval", "heartbeats.connector_name", "source_admin"),
    "verbatim.heartbeat",
)


class SharedSetting(NamedTuple):
    """A setting that flows of a pair share and have otherwise; `by` says what they share."""

    flows: tuple[Flow, ...]
    by: str
    setting: str

    @property
    def is_taken_over(self) -> bool:
        """Whether a flow that says nothing of it takes what another one says."""
        return self.setting not in _NAMES_OF_TOPICS


class Statement(NamedTuple):
    """What a flow, or a pair of it, says of a setting: `values` as written, with the keys above it; `base` is where."""

    base: PathKey
    values: Mapping[str, object]


def unequal_settings(flows: Sequence[Flow]) -> Iterator[SharedSetting]:
    """Yield what flows of a pair share and have otherwise. A lane has the settings of its flow."""
    for group in by_pair(flow for flow in flows if flow.lane_of is None).values():
        if len(group) < 2:
            continue
        checked = [flow for flow in group if flow.with_checkpoints]
        with_heartbeats = [flow for flow in group if flow.settings.heartbeats.enabled]
        for by, some, settings in (
            ("the pair", group, _OF_PAIR),
            ("the checkpoint connector of", checked, _OF_CHECKPOINTS),
            ("the heartbeat connector of", with_heartbeats, _OF_HEARTBEATS),
        ):
            for setting in settings:
                value = attrgetter(setting)
                if any(value(flow.settings) != value(some[0].settings) for flow in some[1:]):
                    yield SharedSetting(tuple(some), by, setting)


def statements(spec: Spec, flow: Flow, setting: str) -> list[Statement]:
    """Return what the flow itself and its pair say of a setting; nothing where it is that of the defaults."""
    own: PathKey = ("flows", flow.name)
    read = []
    for base in (own, (*own, "pairs", flow.pair)):
        node: object = spec.raw
        for key in (*base, *setting.split(".")):
            if not isinstance(node, Mapping) or key not in node:
                break
            node = node[key]
        else:
            for key in reversed(setting.split(".")):
                node = {key: node}
            read.append(Statement(base, dict(node) if isinstance(node, Mapping) else {}))
    return read


def statements_of_others(spec: Spec, flows: Sequence[Flow]) -> dict[tuple[str, str], list[Statement]]:
    """Return what each flow, by name and pair, takes over from other flows of its pair."""
    taken: dict[tuple[str, str], list[Statement]] = {}
    for shared in unequal_settings(flows):
        if shared.is_taken_over:
            sayings = [
                (flow, statement) for flow in shared.flows for statement in statements(spec, flow, shared.setting)
            ]
            for flow in shared.flows:
                others = [statement for other, statement in sayings if other is not flow]
                taken.setdefault((flow.name, flow.pair), []).extend(others)
    return taken


def contradictions(spec: Spec, flows: Sequence[Flow]) -> Iterator[tuple[PathKey, str]]:
    """Yield the place and the message of each setting on which flows of a pair do not agree, once for all pairs."""
    pairs: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[SharedSetting]] = {}
    for shared in unequal_settings(flows):
        texts = tuple((flow.name, _text(spec, flow, shared)) for flow in shared.flows)
        pairs.setdefault((shared.by, shared.setting, texts), []).append(shared)
    for (by, setting, texts), alike in pairs.items():
        speaking = [flow for flow in alike[0].flows if statements(spec, flow, setting)]
        named = dict(texts) if not alike[0].is_taken_over else {flow.name: dict(texts)[flow.name] for flow in speaking}
        last = speaking[-1] if speaking else alike[0].flows[-1]
        place = statements(spec, last, setting)[-1].base if speaking else ("flows", last.name)
        names = [f"'{name}'" for name in named]
        which = f"{by} {few([shared.flows[0].pair for shared in alike], 1)}"
        says = few([f"'{name}' says {text or 'nothing'}" for name, text in named.items()], 3, " and ")
        paste = next(text for text in named.values() if text)
        first, *others = (f"{name}: {{{paste}}}" for name in named)
        remedy = (
            f"write it in one of them alone: flows: {{{first}}}"
            if alike[0].is_taken_over
            else f"write it in all of them: flows: {{{few([first, *others], 3)}}}, or in none"
        )
        message = f"flows {few(names, 3)} share {which}, which has one {setting}: {says}; {remedy}"
        yield (*place, *setting.split(".")), message


def _text(spec: Spec, flow: Flow, shared: SharedSetting) -> str:
    """Return what a flow says as YAML on one line, secrets masked; empty where it says nothing."""
    sayings = statements(spec, flow, shared.setting)
    return (
        ", ".join(f"{key}: {inline_yaml(_mask_values(value))}" for key, value in sayings[-1].values.items())
        if sayings
        else ""
    )


def _mask_values(value: object, key: str = "") -> object:
    if isinstance(value, Mapping):
        return {name: _mask_values(below, str(name)) for name, below in value.items()}
    return mask(key, value) if isinstance(value, str) and key else value
