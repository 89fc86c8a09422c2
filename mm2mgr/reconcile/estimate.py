"""Estimates what each write of a plan costs beyond its Connect cluster, from what was read of topics, offsets and sizes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mm2mgr.lint.hops import selection_of
from mm2mgr.lint.subject import Subject
from mm2mgr.reconcile.guards import Connectors
from mm2mgr.reconcile.mirrored import MirroredState, MirrorVerdict, Widening, renamed_text
from mm2mgr.reconcile.plan import Change, Named
from mm2mgr.reconcile.price import Assigned, Price, TopicSizes, Volume, assigned, moved, volume

_LATEST = "source.consumer.auto.offset.reset"


@dataclass(frozen=True)
class Estimate:
    """What was read for a plan; `sizes` are by alias of the source, and lack those that did not answer."""

    run: Connectors
    seen: MirroredState
    widenings: Mapping[Named, Widening]
    verdicts: Mapping[Named, MirrorVerdict]
    sizes: Mapping[str, TopicSizes]
    stored: Mapping[tuple[str, str], float]
    """What a record takes in topics of targets, by alias and name, where it was measured."""
    groups: Mapping[Named, tuple[str, ...]]
    """What checkpoint connectors translate, where it could be read."""

    def priced(self, change: Change) -> Change:
        """Return the change with what it costs."""
        named = change.connect, change.connector
        more = self.moves(change)
        if named in self.verdicts:
            more += self.mirrors(change, self.widenings[named], self.verdicts[named])
        price = change.price
        if price.group_patterns and named in self.groups:
            price = replace(price, groups=self.groups[named], group_patterns=())
        return replace(change, price=price + more)

    def moves(self, change: Change) -> Price:
        """Return how many partitions get another task."""
        named = change.connect, change.connector
        wanted, live = self.run.desired.get(named), self.run.live.get(named)
        if change.type != "source" or change.action != "update" or not wanted or not live or not change.tasks:
            return Price()
        if named not in self.widenings and not any(key.key == "tasks.max" for key in change.keys):
            return Price()
        listed = self.seen.listed(wanted.source)
        most = (change.config or {}).get("tasks.max", "1")
        tasks = change.tasks, int(most) if most.isdecimal() else 1
        found = moved(listed.partitions, _assigned(live), _assigned(wanted), tasks) if listed else None
        return Price(moved=found[0], partitions=found[1]) if found else Price(moved=None)

    def mirrors(self, change: Change, widening: Widening, verdict: MirrorVerdict) -> Price:
        """Return what is mirrored a second time, skipped, or called otherwise on the target."""
        final = [renamed_text(verdict.renamed, widening.target)] if verdict.renamed else []
        records = sum(count for _, count in change.takes.topics.values()) if change.takes else 0
        if records and (change.config or {}).get(_LATEST) == "latest" and not verdict.topics:
            final.append(f"{records} records that its topics have now are never mirrored ({_LATEST}=latest)")
        repeats = bool(verdict.again or verdict.topics)
        return Price(again=self.again(widening, verdict) if repeats else None, irreversible=tuple(final))

    def again(self, widening: Widening, verdict: MirrorVerdict) -> Volume:
        sizes = self.sizes.get(widening.source)
        if sizes is None or not verdict.topics:
            return Volume(unmeasured=(f"topics of '{widening.source}'",))
        found = {topic: self.stored.get((widening.target, widening.renamed(topic))) for topic in verdict.topics}
        stored = {topic: size for topic, size in found.items() if size}
        return volume(sizes, verdict.topics, self.seen.offsets.get(widening.named) or {}, stored)


def _assigned(subject: Subject) -> Assigned | None:
    return assigned(selection_of(subject), heartbeats=subject.flag("heartbeats.replication.enabled", default=True))
