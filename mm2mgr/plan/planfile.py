"""A reviewed plan as a JSON file, and the check that it still matches what apply would do.

The file holds no secret and is not executed: apply makes the plan anew from tree and live state, and refuses it if it
differs. What an earlier apply of the same file has done already, or has begun, is no difference.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mm2mgr.comparison.differences import Named
from mm2mgr.comparison.ownership import Journal, without_journal
from mm2mgr.errors import Mm2mgrError, StalePlan
from mm2mgr.files import FileKind, Unreadable, read_bytes, write_whole
from mm2mgr.json_values import JsonObject, to_json
from mm2mgr.plan.changes import WRITES, Change, ClusterPlan, Plan, Price, Wish
from mm2mgr.plan.quotas import QuotaChange
from mm2mgr.plan.saved import UNKNOWN, FlowMatrix, Making, check_shape, parse_matrix, parse_plan
from mm2mgr.remarks import Remark
from mm2mgr.secrets import mask
from mm2mgr.text import few

_MOST_BYTES = 1_000_000_000
FORMAT = 1
PLAN = FileKind(
    "a plan file", lambda head: '"mm2mgr-plan"' in head[:100], mode=0o600, failure="the plan could not be written"
)
_MAKE = "make one with mm2mgr plan --out FILE"
ANEW = "make and review a new one: mm2mgr plan --out FILE"


@dataclass(frozen=True)
class PlanFile:
    """The content of a plan file: the tree it was made from, how, and the plan itself as JSON-ready values.

    `as_shown` is that plan as people see it, made of the same values, without the configs that the file does not hold;
    `matrix` the flows of the whole tree (None: the plan is about some of them), and `sha256` the digest of the file.
    """

    clusters: tuple[str, ...]
    templates: str | None
    only: tuple[str, ...] | None
    plan: JsonObject
    as_shown: Plan
    matrix: FlowMatrix | None
    making: Making
    sha256: str

    def to_dict(self) -> JsonObject:
        """Return the plan as `plan -o json` has it, with what it was saved with."""
        clusters = [
            {**part, "changes": [{k: change[k] for k in change if k != "saw"} for change in part["changes"]]}
            for part in self.plan["clusters"]
        ]
        saved = {"clusters": list(self.clusters), "templates": self.templates, "only": self.only and list(self.only)}
        return {**self.plan, "clusters": clusters, "saved": {**to_json(self.making), **saved, "sha256": self.sha256}}

    @property
    def waiting(self) -> dict[Named, str]:
        """The updates that waited when the plan was made, with reasons: not part of what was reviewed."""
        return {
            (part["connect"], change["connector"]): str(change["waits"])
            for part in self.plan["clusters"]
            for change in part["changes"]
            if change.get("waits")
        }

    @property
    def wish(self) -> Wish:
        """How the plan was made. All its deletes were reviewed, so no number of them needs another word."""
        deletes = sum(change["action"] == "delete" for part in self.plan["clusters"] for change in part["changes"])
        return Wish(
            prune=self.plan["prune"],
            allow=frozenset(self.plan["allow"]),
            allow_deletes=max(deletes, self.plan["allow_deletes"]),
            max_changes=self.plan["max_changes"],
        )


def write_plan(  # noqa: PLR0913, PLR0917 - the plan, how it was made, and of what
    path: Path,
    plan: Plan,
    clusters: Sequence[str],
    templates: str | None,
    only: Sequence[str] | None,
    matrix: FlowMatrix | None = None,
    making: Making = UNKNOWN,
) -> None:
    """Write the plan so that the file is either whole or not there; a file that is no plan is not overwritten."""
    content = to_json(plan)
    for part, cluster in zip(content["clusters"], plan.clusters, strict=True):
        for written, change in zip(part["changes"], cluster.changes, strict=True):
            written["saw"] = _digests_of(change)
    document = {
        "mm2mgr-plan": FORMAT,
        "made": to_json(making),
        "clusters": list(clusters),
        "templates": templates,
        "only": None if only is None else list(only),
        "topology": to_json(matrix),
        "plan": content,
    }
    write_whole(path, json.dumps(document, indent=1) + "\n", PLAN)


def read_plan(path: Path) -> PlanFile:
    """Read a plan file; Mm2mgrError, with the key, when it is not one that `write_plan` writes."""
    try:
        data = read_bytes(path, _MOST_BYTES)
        document = json.loads(data.decode(), object_pairs_hook=_object)
    except Unreadable as error:
        raise Mm2mgrError(f"{path}: {error}", hint=_MAKE) from error
    except RecursionError as error:
        raise Mm2mgrError(f"{path}: not a plan file: nested too deeply", hint=_MAKE) from error
    except UnicodeDecodeError as error:
        raise Mm2mgrError(f"{path}: not a plan file: byte {error.start + 1} is not UTF-8", hint=_MAKE) from error
    except ValueError as error:
        raise Mm2mgrError(f"{path}: not a plan file: {error}", hint=_MAKE) from error
    kind = document.get("mm2mgr-plan") if isinstance(document, dict) else None
    if not isinstance(kind, int) or isinstance(kind, bool):
        raise Mm2mgrError(f"{path}: not a plan file of mm2mgr", hint=_MAKE)
    if kind != FORMAT:
        problem = f"{path}: a plan file of format {kind}, and this mm2mgr reads format {FORMAT}"
        raise Mm2mgrError(problem, hint=f"use the mm2mgr that wrote it, or {_MAKE}")
    try:
        return _parse_document(document, hashlib.sha256(data).hexdigest())
    except ValueError as error:
        raise Mm2mgrError(f"{path}: this plan file is damaged: {error}", hint=_MAKE) from error


def _object(pairs: Sequence[tuple[str, object]]) -> JsonObject:
    """Return an object of JSON; ValueError for one that says two things under the same key."""
    values = dict(pairs)
    if len(values) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"{key}: it is there twice")
    return values


def _parse_document(document: JsonObject, sha256: str) -> PlanFile:
    check_shape(document)
    paths = [("clusters", path) for path in document["clusters"]]
    for key, path in (*paths, ("templates", document["templates"] or "")):
        _check_path(key, path)
    matrix, only = document["topology"], document["only"]
    return PlanFile(
        tuple(document["clusters"]),
        document["templates"],
        None if only is None else tuple(only),
        document["plan"],
        parse_plan(document["plan"]),
        None if matrix is None else parse_matrix(matrix),
        Making(**document["made"]),
        sha256,
    )


def _check_path(key: str, path: str) -> None:
    try:
        is_path = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        is_path = False
    if not is_path:
        raise ValueError(f"{key}: no file can have such a path")


def as_reviewed(reviewed: JsonObject, now: Plan) -> Plan:
    """Return what was reviewed and is still to be done; StalePlan names the first differences if `now` differs.

    A Connect cluster that cannot be read holds up no other: now, it is in the plan with its error. Then, its changes
    were never reviewed, so they are left out, also with an error.
    """
    if differences := list(_differences(reviewed, now)):
        shown = few(differences, 5, "; ")
        raise StalePlan(f"the plan is stale: {shown}", hint=ANEW)
    unread = {cluster["connect"] for cluster in reviewed["clusters"] if cluster["error"]}
    reason = "it could not be read when the plan was made, so its changes were never reviewed"
    return replace(
        now,
        clusters=tuple(
            ClusterPlan(part.connect, error=reason, hint=ANEW) if part.connect in unread and not part.error else part
            for part in now.clusters
        ),
        quotas=tuple(
            quota.as_blocked(Remark(reason, remedy=ANEW))
            if quota.is_write and _unread_quota(reviewed, quota)
            else quota
            for quota in now.quotas
        ),
    )


def _unread_quota(reviewed: JsonObject, change: QuotaChange) -> bool:
    named = change.kafka, change.entity.client_id, change.entity.user
    was = _by_entity(reviewed["quotas"]).get(named)
    return was is not None and was["action"] == "blocked"


def _differences(before: JsonObject, now: Plan) -> Iterator[str]:
    after = to_json(now)
    if any(before.get(key) != after[key] for key in ("owner", "prune", "allow")):
        yield "owner, --prune or --allow differs from the saved plan"
    old = {cluster["connect"]: cluster for cluster in before["clusters"]}
    new = {cluster.connect: cluster for cluster in now.clusters}
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            yield f"Connect cluster '{name}' is in only one of the two plans"
        elif not (new[name].error or old[name]["error"]):
            yield from _changes_of(name, old[name], new[name])
    yield from _changed_quotas(before["quotas"], after["quotas"])


def _changes_of(name: str, old: JsonObject, new: ClusterPlan) -> Iterator[str]:
    before = {change["connector"]: change for change in old["changes"]}
    after = {change.connector: change for change in new.changes}
    for connector in sorted(before.keys() | after.keys()):
        was, change = before.get(connector), after.get(connector)
        if was and _is_done(was, change):
            continue
        now = to_json(change)
        actions = f"{was['action'] if was else 'absent'}, now {now['action'] if now else 'absent'}"
        if not (was and change and now and was["action"] == now["action"]):
            yield f"{name}/{connector}: reviewed as {actions}"
        elif _essence(was) != _essence(now):
            yield f"{name}/{connector}: other keys would change than reviewed"
        elif (was["saw"]["config"], was["saw"]["wanted"]) != (
            _digest(_without_journal(change)),
            _digest(change.config),
        ):
            yield f"{name}/{connector}: its config was changed since the plan was made"
        elif change.action in WRITES and (costs := _unreviewed_costs(was["price"] or {}, change.price)):
            yield f"{name}/{connector}: {costs}, which was not reviewed"


def _unreviewed_costs(reviewed: JsonObject, now: Price) -> str:
    """Say what a change has come to cost since; figures alone are none of it, since they grow while connectors run."""
    if now.again and not reviewed.get("again"):
        return "records would be mirrored again"
    return now.irreversible[-1] if len(now.irreversible) > len(reviewed.get("irreversible", ())) else ""


_QuotaKey = tuple[str, str, str]
_COMPARED_OF_QUOTAS = ("action", "before", "after", "bytes_per_second", "brokers")


def _by_entity(quotas: Sequence[JsonObject]) -> dict[_QuotaKey, JsonObject]:
    return {(quota["kafka"], quota["client_id"], quota["user"] or ""): quota for quota in quotas}


def _changed_quotas(before: Sequence[JsonObject], after: Sequence[JsonObject]) -> Iterator[str]:
    """Yield the quotas that would be written otherwise than reviewed; blocked ones, then or now, are not."""
    old, new, none = _by_entity(before), _by_entity(after), dict.fromkeys(_COMPARED_OF_QUOTAS)
    for named in sorted(old.keys() | new.keys()):
        was, now = old.get(named, none), new.get(named, none)
        is_done = now["before"] == now["after"] == was["after"]
        is_same = all(was[key] == now[key] for key in _COMPARED_OF_QUOTAS)
        if not (is_same or is_done or "blocked" in (was["action"], now["action"])):
            yield f"{named[0]}: the quota of client id {named[1]} is not as reviewed"


def _is_done(was: JsonObject, now: Change | None) -> bool:
    """Tell whether a reviewed change was carried out, or begun by an apply that did not come to its end."""
    if was["action"] == "delete":
        return now is None
    saw = was["saw"]
    if now is None or was["action"] not in WRITES or not saw["wanted"]:
        return False
    if now.action == "no-op":
        rests = was["state"] is None or was["state"]["after"] == now.shown
        return rests and bool(_digest(now.before) == saw["wanted"])
    if now.moves_to and not now.keys:  # a giver that gave up its topics already, and has yet to be resumed
        return bool(_digest(now.before) == saw["wanted"])
    return bool(now.action in WRITES and Journal.of_config(now.before or {}) and _digest(now.config) == saw["wanted"])


def _digests_of(change: Change) -> JsonObject:
    """Return what the plan saw of a connector, and what it will be: configs as digests."""
    return {
        "config": _digest(_without_journal(change)),
        "wanted": _digest(change.config),
        "state": change.shown,
        "tasks": change.tasks,
    }


def _without_journal(change: Change) -> Mapping[str, str] | None:
    """Return the live config; of a giver without the journal that an apply of this move left in it."""
    return without_journal(change.before) if change.moves_to and change.before else change.before


def _digest(config: Mapping[str, str] | None) -> str | None:
    """Return a digest of a config without its secrets, since a short one could be guessed from it."""
    if config is None:
        return None
    text = json.dumps({key: mask(key, value) for key, value in config.items() if key != "name"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _essence(change: JsonObject | None) -> JsonObject | None:
    """Return what a change would do, without its comments, and the lines that its values come from.

    Words and steps follow from the rest; where a move of two connectors was cut short, they are other ones."""
    if change is None:
        return None
    not_reviewed = {
        "remedy",
        "warnings",
        "takes",
        "ends",
        "renames",
        "needs_offsets",
        "rests",
        "price",
        "keys",
        "saw",
        "reason",
        "steps",
        "follows",
        "start",
    }
    keys = [{name: value for name, value in key.items() if name != "origin"} for key in change["keys"]]
    # Where a name goes on is a figure that grows while its connector runs; which names do was reviewed.
    renames = [(renamed["old"], renamed["new"]) for renamed in change.get("renames") or ()]
    return {"keys": keys, "renames": renames} | {
        name: value for name, value in change.items() if name not in not_reviewed and value is not None
    }
