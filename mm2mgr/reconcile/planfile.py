"""A reviewed plan as a JSON file, and the check that it still matches what apply would do.

The file holds no secret and is not executed: apply makes the plan anew from tree and live state, and refuses it if it differs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mm2mgr.errors import Mm2mgrError, StalePlan
from mm2mgr.files import FileKind, Unreadable, read_bytes, write_whole
from mm2mgr.reconcile.plan import ClusterPlan, Named, Plan, Wish
from mm2mgr.text import few

_MOST_BYTES = 1_000_000_000
FORMAT = 1
PLAN = FileKind(
    "a plan file", lambda head: '"mm2mgr-plan"' in head[:100], mode=0o600, failure="the plan could not be written"
)
_ANEW = "make and review a new one: mm2mgr plan --out FILE"


@dataclass(frozen=True)
class PlanFile:
    """The content of a plan file: the tree it was made from, how, and the plan itself as JSON-ready values."""

    clusters: tuple[str, ...]
    templates: str | None
    only: tuple[str, ...] | None
    plan: dict[str, Any]

    @property
    def waiting(self) -> dict[Named, str]:
        """The updates that waited when the plan was made, with their reasons: they are not part of what was reviewed."""
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


def write_plan(
    path: Path, plan: Plan, clusters: Sequence[str], templates: str | None, only: Sequence[str] | None
) -> None:
    """Write the plan so that the file is either whole or not there; a file that is no plan is not overwritten."""
    document = {
        "mm2mgr-plan": FORMAT,
        "clusters": list(clusters),
        "templates": templates,
        "only": None if only is None else list(only),
        "plan": plan.to_dict(),
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
        return _parsed(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Mm2mgrError(f"{path}: this plan file is damaged", hint="make one with mm2mgr plan --out FILE") from error


def _parsed(document: dict[str, Any]) -> PlanFile:
    only, plan = document["only"], document["plan"]
    names = [cluster["connect"] for cluster in plan["clusters"]] + [
        str(cluster["error"]) for cluster in plan["clusters"]
    ]
    names += [change[key] for one in plan["clusters"] for change in one["changes"] for key in ("connector", "action")]
    if not all(isinstance(name, str) for name in names):
        raise TypeError("a name that is not text")
    if any("\0" in path for path in (*document["clusters"], document["templates"] or "")):
        raise ValueError("an invalid path")
    found = PlanFile(
        tuple(str(path) for path in document["clusters"]),
        document["templates"],
        None if only is None else tuple(str(flow) for flow in only),
        plan,
    )
    found.wish  # noqa: B018  a number that is none shows here
    return found


def as_reviewed(reviewed: dict[str, Any], now: Plan) -> Plan:
    """Return what was reviewed and can be carried out now; raise StalePlan, naming the first differences, if `now` differs.

    A Connect cluster that cannot be read holds up no other: now, it is in the plan with its error. Then, its changes were
    never reviewed, so they are left out, also with an error.
    """
    differences = list(_differences(reviewed, now.to_dict()))
    if differences:
        shown = few(differences, 5, "; ")
        raise StalePlan(f"the plan is stale: {shown}", hint=_ANEW)
    unread = {cluster["connect"] for cluster in reviewed["clusters"] if cluster["error"]}
    why = "it could not be read when the plan was made, so its changes were never reviewed"
    return replace(
        now,
        clusters=tuple(
            ClusterPlan(part.connect, error=why, hint=_ANEW) if part.connect in unread and not part.error else part
            for part in now.clusters
        ),
    )


def _differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    if any(before.get(key) != after[key] for key in ("owner", "prune", "allow")):
        yield "owner, --prune or --allow differs from the saved plan"
    old = {cluster["connect"]: cluster for cluster in before.get("clusters", [])}
    new = {cluster["connect"]: cluster for cluster in after["clusters"]}
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            yield f"Connect cluster '{name}' is in only one of the two plans"
        elif not (new[name]["error"] or old[name]["error"]):
            yield from _changed(name, old[name], new[name])


def _changed(name: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    before = {change["connector"]: change for change in old["changes"]}
    after = {change["connector"]: change for change in new["changes"]}
    for connector in sorted(before.keys() | after.keys()):
        was, now = before.get(connector), after.get(connector)
        if _essence(was) == _essence(now):
            continue
        actions = f"{was['action'] if was else 'absent'}, now {now['action'] if now else 'absent'}"
        yield (
            f"{name}/{connector}: reviewed as {actions}"
            if not (was and now and was["action"] == now["action"])
            else f"{name}/{connector}: other keys would change than reviewed"
        )


def _essence(change: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what a change would do, without its remarks and price, and the lines that its values come from."""
    if change is None:
        return None
    said = {"remedy", "warnings", "takes", "needs_offsets", "price", "keys"}
    keys = [{name: value for name, value in key.items() if name != "origin"} for key in change["keys"]]
    return {"keys": keys} | {name: each for name, each in change.items() if name not in said and each is not None}
