"""What a plan file holds: its shape, key by key, and the plan that it reads as. Pure.

Whoever can write to a file can write anything into it, so all that it is shown as is made of the values that `apply`
compares, and a value that no plan has is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from mm2mgr.comparison.differences import KeyChange
from mm2mgr.comparison.ownership import EVERY, Journal, ListEntry, TakeOver
from mm2mgr.connectors import Connector
from mm2mgr.json_values import JsonObject, to_json
from mm2mgr.kafka.quotas import QuotaEntity
from mm2mgr.plan.changes import (
    KINDS,
    Action,
    Change,
    ClusterPlan,
    Handover,
    Plan,
    Price,
    RenamedTopic,
    Taken,
    Volume,
    Wish,
)
from mm2mgr.plan.quotas import QuotaChange
from mm2mgr.remarks import Remark
from mm2mgr.topology import Topology

_LARGEST = 1 << 63


@dataclass(frozen=True)
class FlowMatrix:
    """The sources × targets of a tree: `cells` has per source and target what runs between them, flows with their
    number of tasks first. `flows`, `connectors` and `connects` count them all."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    cells: tuple[tuple[tuple[str, ...], ...], ...]
    flows: int
    connectors: int
    connects: int


def flow_matrix(topology: Topology, connectors: Sequence[Connector]) -> FlowMatrix:
    """Return what mirrors from where to where."""
    sources = tuple(dict.fromkeys(flow.source.alias for flow in topology.flows))
    targets = tuple(dict.fromkeys(flow.target.alias for flow in topology.flows))
    cells: dict[tuple[str, str], list[str]] = {}
    for flow in topology.flows:
        tasks = f"{flow.tasks.maximum} task{'s' if flow.tasks.maximum != '1' else ''}"
        cells.setdefault((flow.source.alias, flow.target.alias), []).append(f"{flow.name} ({tasks})")
    for connector in connectors:
        if connector.type != "source":
            source, _, target = connector.pair.partition("->")
            cells.setdefault((source, target), []).append(connector.type)
    rows = tuple(tuple(tuple(cells.get((source, target), ())) for target in targets) for source in sources)
    return FlowMatrix(sources, targets, rows, len(topology.flows), len(connectors), len(topology.connects))


@dataclass(frozen=True)
class Making:
    """When a plan was made (ISO 8601, UTC), by whom, and of which commit of the tree (empty outside git)."""

    when: str = ""
    who: str = ""
    commit: str = ""


UNKNOWN = Making()


# --- its shape --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _OrNull:
    shape: object
    or_absent: bool = False


_TEXT, _NUMBER, _TEXTS = _OrNull(str), _OrNull(int), [str]
_ACTIONS = frozenset(get_args(Action))
_VOLUME = {"records": int, "bytes": int, "unmeasured": _TEXTS, "uncompressed": _TEXTS}
_PRICE = {
    **{"restarts": int, "moved_partitions": _NUMBER, "partitions": int, "again": _OrNull(_VOLUME)},
    **dict.fromkeys(("groups", "group_patterns", "irreversible"), _TEXTS),
}
_HANDOVER = {"partition": int, "first": _NUMBER, "old_end": _NUMBER, "new_start": _NUMBER}
_CHANGE = {
    **{"connector": str, "type": str, "action": _ACTIONS, "flows": _TEXTS, "reason": str, "remedy": str},
    "warnings": _TEXTS,
    "takes": _OrNull(
        {"topics": {str: {"partitions": int, "records": int}}, "of": int, "stored": _TEXTS, "moved": _TEXTS}
    ),
    "ends": _TEXTS,
    "renames": [{"topic": str, "old": str, "new": str, "handovers": [_HANDOVER], "is_final": bool}],
    "needs_offsets": _TEXTS,
    "keys": [
        {"key": str, "kind": frozenset(("add", "change", "remove")), "before": _TEXT, "after": _TEXT, "origin": _TEXT}
    ],
    "state": _OrNull({"before": str, "after": str}),
    **{"waits": _TEXT, "rests": _TEXT, "price": _OrNull(_PRICE), "steps": _TEXTS},
    **{"takes_over": _OrNull((str, str)), "moves_to": _OrNull((str, str)), "follows": [(str, str)]},
    "start": _OrNull(
        {"partitions": int, "skipped": int, "uncommitted": [(str, int)], "beyond": [(str, int)], "members": _NUMBER},
        or_absent=True,
    ),
    "saw": {"config": _TEXT, "wanted": _TEXT, "state": str, "tasks": int},
}
_LIST_ENTRY = {"list": str, "connector": str, "place": str, "says": str, "done": bool, "pending": _TEXTS}
_CLUSTER = {
    **{"connect": str, "error": _TEXT, "hint": _TEXT, "changes": [_CHANGE], "left_over": _TEXTS, "unowned": int},
    **{"notes": _TEXTS, "lists": [_LIST_ENTRY]},
}
_QUOTA = {
    **{"kafka": str, "client_id": str, "user": _TEXT, "action": _ACTIONS, "before": _OrNull(float), "after": _NUMBER},
    **{"bytes_per_second": _OrNull(float), "brokers": _NUMBER, "flows": _TEXTS, "reason": str, "remedy": str},
    "notes": _TEXTS,
}
_PLAN = {
    **{"owner": str, "prune": bool, "allow": [frozenset(KINDS)], "allow_deletes": int, "max_changes": _NUMBER},
    **{"counts": dict.fromkeys(_ACTIONS, int), "price": _OrNull(_PRICE), "flow_prices": {str: _PRICE}},
    **{"clusters": [_CLUSTER], "quotas": [_QUOTA]},
}
_MATRIX = {
    **{"sources": _TEXTS, "targets": _TEXTS, "cells": [[_TEXTS]]},
    **{"flows": int, "connectors": int, "connects": int},
}
DOCUMENT = {
    "mm2mgr-plan": int,
    "made": {"when": str, "who": str, "commit": str},
    **{"clusters": _TEXTS, "templates": _TEXT, "only": _OrNull(_TEXTS), "topology": _OrNull(_MATRIX), "plan": _PLAN},
}
_WORDS: Mapping[object, str] = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}


def check_shape(value: object, shape: Any = DOCUMENT, place: str = "") -> None:
    """ValueError, with the key, where a document is not of a shape: a type, texts to choose from, an object with just
    these keys or with any of them (`{str: …}`), a list of any length (`[…]`) or of this one (`(…, …)`), or null."""
    if isinstance(shape, type):
        _demand(_is_of_type(value, shape), place, f"{_WORDS[shape]} expected")
    elif isinstance(shape, _OrNull):
        if value is not None:
            check_shape(value, shape.shape, place)
    elif isinstance(shape, frozenset):
        _demand(isinstance(value, str) and value in shape, place, f"one of {', '.join(sorted(shape))} expected")
    elif isinstance(shape, dict):
        _demand(isinstance(value, dict), place, "an object expected")
        _check_object(value, shape, place)  # type: ignore[arg-type]
    else:
        is_fitting = isinstance(value, list) and (isinstance(shape, list) or len(value) == len(shape))
        _demand(is_fitting, place, "a list expected" if isinstance(shape, list) else f"{len(shape)} values expected")
        assert isinstance(value, list)
        shapes = shape * len(value) if isinstance(shape, list) else shape
        for number, (part, of_part) in enumerate(zip(value, shapes, strict=True)):
            check_shape(part, of_part, f"{place}[{number}]")


def _check_object(value: JsonObject, shape: Mapping[Any, object], place: str) -> None:
    below = f"{place}." if place else ""
    if str in shape:
        shape = dict.fromkeys(value, shape[str])
    for key, of_key in shape.items():
        if key in value:
            check_shape(value[key], of_key, below + key)
        else:
            _demand(isinstance(of_key, _OrNull) and of_key.or_absent, below + key, "it is missing")
    for key in value.keys() - shape.keys():
        raise ValueError(f"{below}{key}: no plan has this key")


def _is_of_type(value: object, kind: type) -> bool:
    if kind in {int, float}:
        return type(value) in {int, kind} and -_LARGEST < value < _LARGEST  # type: ignore[operator]
    return isinstance(value, kind)


def _demand(condition: bool, place: str, problem: str) -> None:
    if not condition:
        raise ValueError(f"{place or 'the document'}: {problem}")


# --- the plan that it reads as ----------------------------------------------------------------------------------------


def parse_matrix(values: JsonObject) -> FlowMatrix:
    """Return the matrix of flows of a document of this shape; ValueError where it has other rows or columns."""
    sources, targets, cells = values["sources"], values["targets"], values["cells"]
    is_whole = len(cells) == len(sources) and all(len(row) == len(targets) for row in cells)
    _demand(is_whole, "topology.cells", "a row per source with a cell per target expected")
    rows = tuple(tuple(map(tuple, row)) for row in cells)
    return FlowMatrix(**{**values, "sources": tuple(sources), "targets": tuple(targets), "cells": rows})


def parse_plan(values: JsonObject) -> Plan:
    """Return the plan that a document of this shape reads as, without the configs that it does not hold: it can be
    shown, and not be applied. ValueError, with the key, where it contradicts itself."""
    for key, names in (
        ("clusters", [part["connect"] for part in values["clusters"]]),
        ("quotas", [(quota["kafka"], quota["client_id"], quota["user"]) for quota in values["quotas"]]),
    ):
        _check_once(names, f"plan.{key}")
    for number, part in enumerate(values["clusters"]):
        place = f"plan.clusters[{number}].changes"
        _demand(not (part["error"] and part["changes"]), place, "what could not be read has no changes")
        _check_once([change["connector"] for change in part["changes"]], place)
    plan = Plan(
        values["owner"],
        tuple(map(_cluster, values["clusters"])),
        Wish(values["prune"], frozenset(values["allow"]), values["allow_deletes"], values["max_changes"]),
        tuple(map(_quota, values["quotas"])),
    )
    written = to_json(plan)
    for part, written_part in zip(values["clusters"], written["clusters"], strict=True):
        for change, again in zip(part["changes"], written_part["changes"], strict=True):
            again |= {key: change[key] for key in ("saw", "start") if key in change}
            for key, key_again in zip(change["keys"], again["keys"], strict=True):
                key_again |= {"before": key["before"], "after": key["after"]}  # masked once more, a few differ
    other = "" if values == written else next(_differing_places(values, written, "plan"))
    _demand(not other, other, "it does not fit the rest of the plan")
    return plan


def _check_once(names: Sequence[object], place: str) -> None:
    first = {name: number for number, name in reversed(tuple(enumerate(names)))}
    twice = next((number for number, name in enumerate(names) if first[name] != number), 0)
    _demand(not twice, f"{place}[{twice}]", "it is there twice")


def _differing_places(value: Any, other: Any, place: str) -> Iterator[str]:
    if isinstance(value, dict) and isinstance(other, dict):
        for key in {**value, **other}:
            yield from _differing_places(value.get(key), other.get(key), f"{place}.{key}")
    elif isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
        for number, (part, other_part) in enumerate(zip(value, other, strict=True)):
            yield from _differing_places(part, other_part, f"{place}[{number}]")
    elif value != other:
        yield place


def _cluster(values: JsonObject) -> ClusterPlan:
    lists = tuple(ListEntry(**{**entry, "pending": tuple(entry["pending"])}) for entry in values["lists"])
    texts = {name: tuple(values[name]) for name in ("left_over", "notes")}
    changes = tuple(_change(values["connect"], change) for change in values["changes"])
    return ClusterPlan(**{**values, **texts, "changes": changes, "lists": lists})


def _change(connect: str, values: JsonObject) -> Change:
    saw, state, over = values["saw"], values["state"], values["takes_over"]
    return Change(
        connect,
        values["connector"],
        values["type"],
        values["action"],
        keys=tuple(KeyChange(key["key"], key["before"], key["after"], key["origin"] or "") for key in values["keys"]),
        remarks=tuple(_remarks(values)),
        takes=values["takes"] and _topics(values["takes"]),
        renames=tuple(_rename(renamed) for renamed in values["renames"]),
        before=None if saw["config"] is None else {},
        tasks=saw["tasks"],
        shown=saw["state"],
        state=state and (state["before"], state["after"]),
        price=_price(values["price"]),
        moves_to=values["moves_to"] and (values["moves_to"][0], values["moves_to"][1]),
        takes_over=over and TakeOver((over[0], over[1]), None, None, Journal(""), EVERY),
        follows=tuple((name[0], name[1]) for name in values["follows"]),
        flows=tuple(values["flows"]),
        ends=tuple(values["ends"]),
        needs_offsets=tuple(values["needs_offsets"]),
        steps=tuple(values["steps"]),
    )


def _remarks(values: JsonObject) -> Iterator[Remark]:
    is_blocked = values["action"] == "blocked"
    yield Remark(values["reason"], *(("blocks", values["remedy"]) if is_blocked else ("notes",)))
    yield from (Remark(text, "warns") for text in values["warnings"])
    yield from (Remark(values[name], name) for name in ("waits", "rests") if values[name] is not None)


def _topics(values: JsonObject) -> Taken:
    topics = {topic: (counts["partitions"], counts["records"]) for topic, counts in values["topics"].items()}
    return Taken(topics, values["of"], frozenset(values["stored"]), frozenset(values["moved"]))


def _rename(values: JsonObject) -> RenamedTopic:
    return RenamedTopic(**{**values, "handovers": tuple(Handover(**part) for part in values["handovers"])})


def _price(values: JsonObject | None) -> Price:
    if values is None:
        return Price()
    again = values["again"]
    names = {name: tuple(values[name]) for name in ("groups", "group_patterns", "irreversible")}
    unread = again and (tuple(again["unmeasured"]), tuple(again["uncompressed"]))
    volume = again and Volume(again["records"], again["bytes"], *unread)
    return Price(values["restarts"], values["moved_partitions"], values["partitions"], volume, **names)


def _quota(values: JsonObject) -> QuotaChange:
    others = {name: value for name, value in values.items() if name not in {"client_id", "user"}}
    texts = {name: tuple(values[name]) for name in ("flows", "notes")}
    return QuotaChange(entity=QuotaEntity(values["client_id"], values["user"] or ""), **{**others, **texts})
