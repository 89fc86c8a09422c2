"""A reviewed plan as a JSON file, and the check that it still matches what apply would do.

The file holds no secret and is not executed: apply makes the plan anew from tree and live state, and refuses it if it
differs. What an earlier apply of the same file has done already, or has begun, is no difference.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mm2mgr.comparison.differences import Named
from mm2mgr.comparison.ownership import Journal, without_journal
from mm2mgr.errors import Mm2mgrError, StalePlan
from mm2mgr.files import FileKind, Unreadable, read_bytes, write_whole
from mm2mgr.json_values import JsonObject, to_json
from mm2mgr.plan.changes import WRITES, Change, ClusterPlan, Plan, Wish
from mm2mgr.plan.quotas import QuotaChange
from mm2mgr.remarks import Remark
from mm2mgr.secrets import mask
from mm2mgr.text import few

_MOST_BYTES = 1_000_000_000
FORMAT = 1
PLAN = FileKind(
    "a plan file", lambda head: '"mm2mgr-plan"' in head[:100], mode=0o600, failure="the plan could not be written"
)
_ANEW = "make and review a new one: mm2mgr plan --out FILE"


@dataclass(frozen=True)
class PlanFile:
    """The content of a plan file: the tree it was made from, how, and the plan itself as JSON-ready values.

    `page` is the plan as it was shown to people, for reading alone: nothing is written by it.
    """

    clusters: tuple[str, ...]
    templates: str | None
    only: tuple[str, ...] | None
    plan: JsonObject
    page: str = ""

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
        """How the plan was made. All its changes and deletes were reviewed, so no number of them needs another word."""
        deletes = sum(change["action"] == "delete" for part in self.plan["clusters"] for change in part["changes"])
        return Wish(
            prune=bool(self.plan.get("prune")),
            allow=frozenset(map(str, self.plan.get("allow") or ())),
            allow_deletes=max(deletes, int(self.plan.get("allow_deletes") or 0)),
        )


def write_plan(  # noqa: PLR0913, PLR0917 - the plan, how it was made, and how it reads
    path: Path,
    plan: Plan,
    clusters: Sequence[str],
    templates: str | None,
    only: Sequence[str] | None,
    page: str = "",
) -> None:
    """Write the plan so that the file is either whole or not there; a file that is no plan is not overwritten."""
    content = to_json(plan)
    for part, cluster in zip(content["clusters"], plan.clusters, strict=True):
        for written, change in zip(part["changes"], cluster.changes, strict=True):
            written["saw"] = _digests_of(change)
    document = {
        "mm2mgr-plan": FORMAT,
        "clusters": list(clusters),
        "templates": templates,
        "only": None if only is None else list(only),
        "plan": content,
        "page": page,
    }
    write_whole(path, json.dumps(document, indent=1) + "\n", PLAN)


def read_plan(path: Path) -> PlanFile:
    """Read a plan file; Mm2mgrError when it is not one."""
    try:
        document = json.loads(read_bytes(path, _MOST_BYTES))
    except Unreadable as error:
        raise Mm2mgrError(f"{path}: {error}") from error
    except RecursionError as error:
        raise Mm2mgrError(f"{path}: not a plan file: nested too deeply") from error
    except ValueError as error:
        raise Mm2mgrError(f"{path}: not a plan file: {error}", hint="make one with mm2mgr plan --out FILE") from error
    if (
        not isinstance(document, dict)
        or document.get("mm2mgr-plan") != FORMAT
        or not isinstance(document.get("plan"), dict)
    ):
        raise Mm2mgrError(f"{path}: not a plan file of format {FORMAT}", hint="make one with mm2mgr plan --out FILE")
    try:
        return _parse_document(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Mm2mgrError(f"{path}: this plan file is damaged", hint="make one with mm2mgr plan --out FILE") from error


def _parse_document(document: JsonObject) -> PlanFile:
    only, plan = document["only"], document["plan"]
    names = [cluster["connect"] for cluster in plan["clusters"]] + [
        str(cluster["error"]) for cluster in plan["clusters"]
    ]
    names += [
        change[key] for cluster in plan["clusters"] for change in cluster["changes"] for key in ("connector", "action")
    ]
    if not all(isinstance(name, str) for name in names):
        raise TypeError("a name that is not text")
    templates = document["templates"]
    paths = [*document["clusters"], *([] if templates is None else [templates])]
    if any(
        b"\0" in os.fsencode(path) for path in paths
    ):  # other types, and characters that no path can hold, are refused too
        raise ValueError("an invalid path")
    page = document.get("page", "")
    if not isinstance(page, str):
        raise TypeError("a page that is not text")
    names_only = None if only is None else tuple(str(flow) for flow in only)
    plan_file = PlanFile(tuple(document["clusters"]), templates, names_only, plan, page)
    plan_file.wish  # noqa: B018  a number that is none shows here
    return plan_file


def as_reviewed(reviewed: JsonObject, now: Plan) -> Plan:
    """Return what was reviewed and is still to be done; StalePlan names the first differences if `now` differs.

    A Connect cluster that cannot be read holds up no other: now, it is in the plan with its error. Then, its changes
    were never reviewed, so they are left out, also with an error.
    """
    try:
        differences = list(_differences(reviewed, now))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Mm2mgrError("the plan file is damaged", hint=_ANEW) from error
    if differences:
        shown = few(differences, 5, "; ")
        raise StalePlan(f"the plan is stale: {shown}", hint=_ANEW)
    unread = {cluster["connect"] for cluster in reviewed["clusters"] if cluster["error"]}
    reason = "it could not be read when the plan was made, so its changes were never reviewed"
    return replace(
        now,
        clusters=tuple(
            ClusterPlan(part.connect, error=reason, hint=_ANEW) if part.connect in unread and not part.error else part
            for part in now.clusters
        ),
        quotas=tuple(
            quota.as_blocked(Remark(reason, remedy=_ANEW))
            if quota.is_write and _unread_quota(reviewed, quota)
            else quota
            for quota in now.quotas
        ),
    )


def _unread_quota(reviewed: JsonObject, change: QuotaChange) -> bool:
    named = change.kafka, change.entity.client_id, change.entity.user
    was = _by_entity(reviewed.get("quotas") or []).get(named)
    return was is not None and was["action"] == "blocked"


def _differences(before: JsonObject, now: Plan) -> Iterator[str]:
    after = to_json(now)
    if any(before.get(key) != after[key] for key in ("owner", "prune", "allow")):
        yield "owner, --prune or --allow differs from the saved plan"
    old = {cluster["connect"]: cluster for cluster in before.get("clusters", [])}
    new = {cluster.connect: cluster for cluster in now.clusters}
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            yield f"Connect cluster '{name}' is in only one of the two plans"
        elif not (new[name].error or old[name]["error"]):
            yield from _changes_of(name, old[name], new[name])
    yield from _changed_quotas(before.get("quotas") or [], after["quotas"])


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
        elif was.get("saw") and (was["saw"].get("config"), was["saw"].get("wanted")) != (
            _digest(_without_journal(change)),
            _digest(change.config),
        ):
            yield f"{name}/{connector}: its config was changed since the plan was made"


_QuotaKey = tuple[str, str, str]


def _by_entity(quotas: Sequence[JsonObject]) -> dict[_QuotaKey, JsonObject]:
    return {(quota["kafka"], quota["client_id"], quota["user"] or ""): quota for quota in quotas}


def _changed_quotas(before: Sequence[JsonObject], after: Sequence[JsonObject]) -> Iterator[str]:
    """Yield the quotas that would be written otherwise than reviewed; blocked ones, then or now, are not."""
    old, new, none = _by_entity(before), _by_entity(after), {"before": None, "after": None, "action": ""}
    for named in sorted(old.keys() | new.keys()):
        was, now = old.get(named, none), new.get(named, none)
        is_done = now["before"] == now["after"] == was["after"]
        is_same = (was["before"], was["after"]) == (now["before"], now["after"])
        if not (is_same or is_done or "blocked" in (was["action"], now["action"])):
            yield f"{named[0]}: the quota of client id {named[1]} is not as reviewed"


def _is_done(was: JsonObject, now: Change | None) -> bool:
    """Tell whether a reviewed change was carried out, or begun by an apply that did not come to its end."""
    if was["action"] == "delete":
        return now is None
    saw = was.get("saw") or {}
    if now is None or was["action"] not in WRITES or not saw.get("wanted"):
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
