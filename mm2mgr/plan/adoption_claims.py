"""What several trees adopt: each leaves a claim beside the history, since it writes nothing to the connector, and sees
those of the others.

A claim lasts until its connector carries the owner mark or its tree releases it. A tree that finds another owner's
claim leaves its own all the same: so both refuse, and both name the other, until one of them gives way. It bars every
write of the tree whose mark the connector still carries, too: that may be an old checkout, from before the connector
was released.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from mm2mgr.comparison.differences import Named
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.live.snapshot import Steps
from mm2mgr.plan.changes import Change, ClusterPlan, aliases_of
from mm2mgr.plan.history import read_topics
from mm2mgr.secrets import mask_text
from mm2mgr.text import visible
from mm2mgr.topology import Topology

_CLAIM = "claim/"
_NO_HISTORY = "the tree says history: false"
Pair = tuple[str, str]
"""Source and target alias in a connector's config, which are the same for every tree."""


@dataclass(frozen=True)
class Claim:
    """One owner's claim on a connector; `connect` and `urls` are how its tree calls and reaches the Connect cluster.

    Trees may call one Connect cluster differently. What is the same for all of them is the Kafka cluster that has the
    claim, the connector's name, and `pair`, which is read from the connector's config.
    """

    owner: str
    connect: str
    connector: str
    pair: Pair
    urls: tuple[str, ...]
    who: str
    commit: str
    when: str

    @property
    def named(self) -> Named:
        """The Connect cluster and the connector."""
        return self.connect, self.connector

    def places(self, topology: Topology, kafka: str) -> tuple[str, ...]:
        """Return the Connect clusters of a tree that it may mean, of those that run on the Kafka cluster where it was
        found.

        A URL shows which one; without any in common it may be each of them.
        """
        urls = {
            name: {mask_text(url) for url in connect.model.url}
            for name, connect in topology.connects.items()
            if connect.kafka == kafka and connect.model.history
        }
        return tuple(name for name, own in urls.items() if own & set(self.urls)) or tuple(urls)

    @property
    def key(self) -> str:
        return f"{_CLAIM}{self.connect}/{self.connector}/{self.owner}"

    def __str__(self) -> str:
        tree = f", commit {self.commit}" if self.commit else ""
        where = (
            f"Connect cluster '{self.connect}' at {self.urls[0]}" if self.urls else f"Connect cluster '{self.connect}'"
        )
        return f"owner '{self.owner}' has adopted it ({where}; by {self.who}, {self.when}{tree})"

    @classmethod
    def parse(cls, text: str) -> Claim | None:
        """Read what was written; None where it is something else."""
        try:
            read = json.loads(text)
            words = {
                name: visible(str(read[name])) for name in ("owner", "connect", "connector", "who", "commit", "when")
            }
            source, target = read["pair"]
            return cls(**words, pair=(str(source), str(target)), urls=tuple(visible(str(url)) for url in read["urls"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            return None


@dataclass(frozen=True)
class Claims:
    """What is claimed of some connectors: by others, and by this tree. `unread` has Connect clusters where that is not
    known, and why.
    """

    others: Mapping[Named, Claim] = field(default_factory=dict)
    own: tuple[Claim, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)


def adopting(owners: Ownership, parts: Iterable[ClusterPlan]) -> dict[Named, Pair]:
    """Return the connectors that are this tree's by its list alone, as a plan saw them."""
    changes = (change for part in parts for change in part.changes)
    return dict(_pair(c) for c in changes if c.before is not None and owners.is_adopted(_pair(c)[0], c.before))


def rewriting(parts: Iterable[ClusterPlan]) -> dict[Named, Pair]:
    """Return the connectors that a plan updates or deletes: another tree may have adopted them, and not have written
    its mark yet.
    """
    changes = (change for part in parts for change in part.changes)
    return dict(_pair(change) for change in changes if change.action in {"update", "delete"} and change.before)


def _pair(change: Change) -> tuple[Named, Pair]:
    return change.named, aliases_of(change.before or {})


def read_claims(topology: Topology, pairs: Mapping[Named, Pair], also: Iterable[str] = ()) -> Steps[Claims]:
    """Read the claims on these connectors, and this tree's own on their Connect clusters and on those in `also`."""
    names = {connect for connect, _ in pairs} | set(also)
    with_history = {name for name in names if topology.connects[name].model.history}
    unread = dict.fromkeys(names - with_history, _NO_HISTORY)
    answers = yield from read_topics({topology.connects[name].kafka for name in with_history})
    by_alias = {alias: answer if isinstance(answer, str) else _claims_in(answer) for alias, answer in answers.items()}
    others, own = dict[Named, Claim](), list[Claim]()
    for name in sorted(with_history):
        claims_there = by_alias[topology.connects[name].kafka]
        if isinstance(claims_there, str):
            unread[name] = claims_there
            continue
        own += [claim for claim in claims_there if (claim.owner, claim.connect) == (topology.owner, name)]
        others |= {
            (name, claim.connector): claim
            for claim in claims_there
            if claim.owner != topology.owner
            and pairs.get((name, claim.connector)) == claim.pair
            and name in claim.places(topology, topology.connects[name].kafka)
        }
    return Claims(others, tuple(own), unread)


def _claims_in(texts: Mapping[str, str]) -> list[Claim]:
    claims = (Claim.parse(text) for key, text in texts.items() if key.startswith(_CLAIM))
    return [claim for claim in claims if claim]


CLAIMED = (
    "if your tree has released it, apply its newest commit; else agree on one owner: the tree that gives it up writes"
    " it under release: and applies"
)
"""What to do about what another owner claims."""


def with_claims_shown(part: ClusterPlan, claims: Claims) -> ClusterPlan:
    """Return the part that says of its entries what another owner claims, and where that is not known."""
    lists = (
        replace(entry, says=f"not adopted: {claim}", done=False, pending=())
        if entry.list == "adopt" and (claim := claims.others.get((part.connect, entry.connector)))
        else entry
        for entry in part.lists
    )
    reason = claims.unread.get(part.connect)
    if reason == _NO_HISTORY and not any(entry.list == "adopt" for entry in part.lists):
        reason = None  # the tree knows that it leaves and reads no claims
    note = f"not verified: whether another owner has adopted the same connectors ({reason})" if reason else None
    return replace(part, lists=tuple(lists), notes=(*part.notes, *filter(None, [note])))
