"""Leaves claims on what a tree adopts beside the history, and withdraws those that are over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime

from mm2mgr.apply.history import Recorder
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.live.read import ask_all
from mm2mgr.plan.adoption_claims import Claim, adopting, read_claims
from mm2mgr.plan.changes import ClusterPlan
from mm2mgr.secrets import mask_text
from mm2mgr.topology import Topology


async def settle_claims(topology: Topology, parts: Iterable[ClusterPlan], recorder: Recorder) -> None:
    """Leave a claim on what is adopted, or would be if no other owner claimed it, and withdraw those that are over."""
    parts, owners = tuple(parts), Ownership.of(topology)
    readable = {part.connect for part in parts if not part.error}
    concerned = {named[0] for named in (*owners.adopted, *owners.released)} & readable
    adopted = adopting(owners, parts)
    claims = await ask_all(read_claims(topology, adopted, concerned), topology)
    stopped = {c.named for part in parts for c in part.changes if c.action == "blocked"}
    mine = {claim.named: claim for claim in claims.own}
    for named, pair in adopted.items():
        is_held = named not in stopped or named in claims.others
        if is_held and named not in mine and named[0] not in claims.unread:
            urls = tuple(mask_text(url) for url in topology.connects[named[0]].model.url)
            when = datetime.now(UTC).isoformat(timespec="seconds")
            by = recorder.author
            claim = Claim(str(topology.owner), *named, pair, urls, by.who, by.commit, when)
            recorder.write(claim.connect, claim.key, json.dumps(asdict(claim)))
    declared = owners.adopted.keys()
    planned = {c.named for part in parts for c in part.changes}
    for named, claim in mine.items():
        is_marked = named in planned and named not in adopted
        if named not in declared or is_marked:
            recorder.write(claim.connect, claim.key, None)


async def withdraw_undeclared(topology: Topology, connects: Iterable[str], recorder: Recorder) -> None:
    """Withdraw this tree's claims on connectors that it adopts no more: the line of `adopt:` may go without one of
    `release:`.
    """
    declared = Ownership.of(topology).adopted
    for claim in (await ask_all(read_claims(topology, {}, connects), topology)).own:
        if claim.named not in declared:
            recorder.write(claim.connect, claim.key, None)
    await asyncio.to_thread(recorder.close)
