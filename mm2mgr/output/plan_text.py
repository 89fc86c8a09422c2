"""A topology and a plan as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from operator import eq

from mm2mgr.comparison.differences import KeyChange
from mm2mgr.comparison.ownership import ListEntry
from mm2mgr.connectors import RESTING
from mm2mgr.output.console import STYLES, say, say_table
from mm2mgr.output.tables import Table
from mm2mgr.plan.changes import Change, ClusterPlan, Plan, Price, RenamedTopic, Volume
from mm2mgr.plan.planfile import PlanFile
from mm2mgr.plan.quotas import QuotaChange
from mm2mgr.plan.saved import FlowMatrix
from mm2mgr.text import bytes_text, few, fit_text, number_of, one_line, rate_text, visible

_SIGNS = {"create": "+", "update": "~", "delete": "-", "no-op": "=", "blocked": "!"}
_KEY_SIGNS = {"add": "+", "change": "~", "remove": "-"}
_LONGEST = 100
_FLOWS = 8
"""How many flows and other connectors of a pair the matrix names."""
_CONTEXT = 20
_SAVED_NAMES = 8


def say_topology(matrix: FlowMatrix) -> None:
    """Print the sources × targets matrix: per cell flows with their tasks.max and the pair's other connectors."""
    rows = [
        [source, *(few(cell or ("-",), _FLOWS, " + ") for cell in cells)]
        for source, cells in zip(matrix.sources, matrix.cells, strict=True)
    ]
    say_table(Table(["source \\ target", *matrix.targets], rows, wrap=matrix.targets))
    flows, connects = number_of(matrix.flows, "flow"), number_of(matrix.connects, "Connect cluster")
    say(f"{flows}, {number_of(matrix.connectors, 'connector')} on {connects}")


def say_plan(plan: Plan, *, full: bool = False, explain: bool = False) -> None:
    """Print what would change, key by key for updates; `full` shows every key of what is created or deleted too."""
    for cluster in plan.clusters:
        _say_cluster(cluster, full=full, explain=explain)
    _say_quotas(plan.quotas)
    keys = [key for change in plan.changes if full or change.action == "update" for key in change.keys]
    texts = (text for key in keys for text in (key.key, key.masked_before, key.masked_after, key.origin))
    if any(len(text or "") > _LONGEST for text in texts):
        say("Values that end with … are cut; -o json shows them in full", style="dim")
    say(f"Plan: {plan_counts_text(plan)}", style="bold")
    if costs := price_text(plan.price):
        say(f"Price: {costs}", style="bold")
    say(f"Data: {data_text(plan)}", style="bold")


def making_texts(saved: PlanFile) -> Iterator[str]:
    """Yield what a plan was saved with: when, by whom, of which tree, for which flows, with which options; and the
    digest of its file."""
    making, wish = saved.making, saved.as_shown.wish
    by = (f"by {making.who}" if making.who else "", f"commit {making.commit}" if making.commit else "")
    yield f"Saved: {', '.join(filter(None, (making.when, *by)))}"
    parts = [f"owner {saved.as_shown.owner}", f"tree {few(saved.clusters, _SAVED_NAMES)}"]
    parts += [f"templates {saved.templates}"] if saved.templates is not None else []
    parts.append("all flows" if saved.only is None else f"flows {few(saved.only, _SAVED_NAMES)}")
    parts += ["--prune"] if wish.prune else []
    parts += [f"--allow {kind}" for kind in sorted(wish.allow)]
    parts += [f"--allow-deletes {wish.allow_deletes}"] if wish.allow_deletes else []
    parts += [f"--max-changes {wish.max_changes}"] if wish.max_changes is not None else []
    yield f"Of: {', '.join(parts)}"
    yield f"File: sha256 {saved.sha256}"


def data_text(plan: Plan) -> str:
    """Say in one sentence what all that a plan writes, and all that it holds back, does to the data."""
    again = plan.price.again
    if plan.writes:
        parts = [_again_sentence(again) if again else "nothing is mirrored again", *_written_parts(plan.writes)]
    else:
        written = "only client quotas are written" if plan.quota_writes else "nothing is written"
        parts = [f"{written}, so nothing is mirrored again and no topic pauses"]
    return "; ".join((*parts, *_held_parts(plan)))


def _written_parts(writes: Sequence[Change]) -> list[str]:
    """Say what is copied for the first time, pauses, stands still, ends and gets another name."""
    parts = []
    taken = [(change, _moved_topics(change)) for change in writes if change.takes]
    new = {
        (change.connect, change.connector, topic): records
        for change, moved in taken
        for topic, (_, records) in (change.takes.topics if change.takes else {}).items()
        if topic not in moved and not _goes_on(change, topic) and not change.price.again
    }
    if new:
        records, topics = sum(new.values()), number_of(len(new), "topic")
        first = f"{number_of(records, 'record')} of {topics} to copy for the first time"
        parts.append(first if records else f"{topics} to copy for the first time, without records yet")
    parts += _going_on_sentences(writes)
    sources = [change for change in writes if change.type == "source"]
    unread = sum(change.action == "create" and change.takes is None and not change.takes_over for change in sources)
    if unread:
        parts.append(f"what {_count_text(unread, 'new flow', 'has', 'have')} to copy is not known")
    pausing = sum(len(moved) for _, moved in taken)
    restarted = sum(bool(change.price.restarts) for change in sources)
    pauses = [number_of(pausing, "topic")] if pausing else []
    pauses += [f"the topics of {number_of(restarted, 'flow')}"] if restarted else []
    if pauses:
        verb = "pauses" if pausing == 1 and not restarted else "pause"
        parts.append(f"{' and '.join(pauses)} {verb} for some seconds")
    resting = sum(change.state is not None and change.state[1] in RESTING for change in sources)
    if resting:
        parts.append(f"{_count_text(resting, 'flow', 'stands', 'stand')} still from then on")
    going = sum(c.state is not None and c.state[0] in RESTING and c.state[1] == "RUNNING" for c in sources)
    if going:
        parts.append("1 flow goes on where it stood" if going == 1 else f"{going} flows go on where they stood")
    ended = sum(change.action == "delete" and not change.moves_to for change in sources)
    if ended:
        parts.append(f"{_count_text(ended, 'flow', 'is', 'are')} mirrored no longer")
    if left := sum(len(change.ends) for change in sources):
        parts.append(f"{_count_text(left, 'topic', 'is', 'are')} mirrored no longer")
    if renamed := sum(len(change.renames) for change in writes):
        parts.append(f"{_count_text(renamed, 'topic', 'goes', 'go')} on under another name")
    return parts


def _held_parts(plan: Plan) -> list[str]:
    """Say what stays as it is: what is blocked, and what runs where nothing could be read."""
    blocked = [change for change in plan.changes if change.action == "blocked"]
    flows = [change for change in blocked if change.type == "source"]
    companions = [change for change in blocked if change.type != "source"]
    new, new_companions = (
        sum(change.before is None and not change.shown for change in changes) for changes in (flows, companions)
    )
    begin, stay = ("does not begin", "do not begin"), ("stays as it is", "stay as they are")
    counts = (
        (new, "blocked flow", begin),
        (len(flows) - new, "blocked flow", stay),
        (new_companions, "blocked checkpoint or heartbeat connector", begin),
        (len(companions) - new_companions, "blocked checkpoint or heartbeat connector", stay),
        (sum(1 for cluster in plan.clusters if cluster.error), "unread Connect cluster", stay),
    )
    return [_count_text(count, noun, *verbs) for count, noun, verbs in counts if count]


def _count_text(count: int, noun: str, verb_of_one: str, verb: str) -> str:
    return f"{number_of(count, noun)} {verb_of_one if count == 1 else verb}"


def _going_on_sentences(writes: Iterable[Change]) -> list[str]:
    """Say what connectors mirrored earlier and take again: those that exist have offsets, others must prove it."""
    stored = {
        (change.connect, change.connector, topic): taken.topics[topic][1]
        for change in writes
        if (taken := change.takes) and not change.price.again
        for topic in taken.stored.intersection(taken.topics).difference(_moved_topics(change))
    }
    proved = sum(len(change.needs_offsets) for change in writes if not change.price.again)
    records, topics = number_of(sum(stored.values()), "record"), _count_text(len(stored), "topic", "goes", "go")
    texts = [f"{topics} on at the stored offsets, {records} behind"] if stored else []
    if proved:
        topics = _count_text(proved, "topic", "goes", "go")
        texts.append(f"{topics} on at the offsets that a former connector of the name stored")
    return texts


def _goes_on(change: Change, topic: str) -> bool:
    """Tell whether a topic that a connector begins to take was mirrored earlier under its name."""
    return topic in change.needs_offsets or (change.takes is not None and topic in change.takes.stored)


def _again_sentence(again: Volume) -> str:
    unknown = f"an unknown volume ({few(again.unmeasured)})" if again.unmeasured else ""
    measured = number_of(again.records, "record") if again.records or not unknown else ""
    are = "is" if (again.records == 1 and not unknown) or (unknown and not measured) else "are"
    return f"{' and '.join(filter(None, (measured, unknown)))} {are} mirrored again"


def _moved_topics(change: Change) -> list[str]:
    """Return the topics that a connector takes over from another one with their stored offsets."""
    return [topic for topic in change.takes.topics if topic in change.takes.moved] if change.takes else []


def plan_counts_text(plan: Plan) -> str:
    """Say how many changes of each kind a plan has, and what it could not plan."""
    counts = plan.counts()
    blocked = f", {counts['blocked']} blocked" if counts["blocked"] else ""
    unread = sum(1 for cluster in plan.clusters if cluster.error)
    unread_text = f"; {number_of(unread, 'Connect cluster')} could not be read" if unread else ""
    left_text = f"; {plan.left_over} no longer declared and still there (--prune deletes)" if plan.left_over else ""
    actions = [quota.action for quota in plan.quotas]
    words = {"create": "to create", "update": "to update", "delete": "to delete", "blocked": "blocked"}
    quotas = [f"{actions.count(action)} {word}" for action, word in words.items() if action in actions]
    quotas_text = f"; client quotas: {', '.join(quotas)}" if quotas else ""
    return (
        f"{counts['create']} to create, {counts['update']} to update, {counts['delete']} to delete, "
        f"{counts['no-op']} unchanged{blocked}{quotas_text}{left_text}{unread_text}"
    )


def _say_quotas(quotas: Sequence[QuotaChange]) -> None:
    for kafka in dict.fromkeys(quota.kafka for quota in quotas):
        say(f"Client quotas on Kafka cluster {kafka}", style="bold")
        here = [quota for quota in quotas if quota.kafka == kafka]
        for quota in here:
            if quota.action != "no-op":
                line = f"  {_SIGNS[quota.action]} {quota.action:7} {entity_text(quota)}  {quota_text(quota)}"
                say(line, style=STYLES.get(quota.action))
            if quota.action == "blocked":
                say(f"      fix: {quota.remedy}")
            for note in quota.notes:
                say(f"      ? {note}", style="yellow")
        if unchanged := sum(quota.action == "no-op" for quota in here):
            say(f"  = {unchanged} unchanged")


def entity_text(quota: QuotaChange) -> str:
    """Name whom a quota is for."""
    return f"client id {quota.entity.client_id}" + (f", user {quota.entity.user}" if quota.entity.user else "")


def quota_text(quota: QuotaChange) -> str:
    """Say what a quota becomes on each broker, and the limit that it is a part of."""
    if quota.action in {"blocked", "delete"}:
        return quota.reason
    before = f"{rate_text(quota.before)} -> " if quota.before is not None else ""
    limit, brokers = rate_text(quota.bytes_per_second or 0), number_of(quota.brokers or 0, "broker")
    return f"{limit} over {brokers}: {before}{rate_text(quota.after or 0)} each"


def _say_cluster(cluster: ClusterPlan, *, full: bool, explain: bool) -> None:
    say(f"Connect cluster {cluster.connect}", style="bold")
    if cluster.error:
        say(f"  ! not planned: {one_line(cluster.error)}", style=STYLES["blocked"])
        if cluster.hint:
            say(f"    {cluster.hint}")
        return
    for note in cluster.notes:
        say(f"  ? {note}", style="yellow")
    for change, *alike in _group_blocked(cluster.changes):
        if alike:
            _say_blocked([change, *alike])
        elif change.action != "no-op":
            _say_change(change, full=full)
            for number, step in enumerate(change.steps if explain else (), 1):
                say(f"      {number}. {step}")
    _say_warnings(cluster.changes)
    if unchanged := sum(change.action == "no-op" for change in cluster.changes):
        say(f"  = {unchanged} unchanged")
    for line in resting(cluster.changes):
        say(f"  = {line}")
    for name in cluster.left_over:
        say(f"  ? {name}: owned but no longer declared; --prune deletes it", style="yellow")
    _say_lists(cluster.lists)
    if cluster.unowned:
        say(f"    {cluster.unowned} connectors of other owners, not touched", style="dim")


def group_entries(entries: Iterable[ListEntry]) -> list[list[ListEntry]]:
    """Group the entries of the tree's lists of which the same became."""
    groups: dict[tuple[str, str, bool], list[ListEntry]] = {}
    for entry in entries:
        groups.setdefault((entry.list, entry.says, entry.done), []).append(entry)
    return list(groups.values())


def _say_lists(entries: Iterable[ListEntry]) -> None:
    for alike in group_entries(entries):
        first = alike[0]
        says = f"{first.says}: this line can go" if first.done else first.says
        if len(alike) > ALIKE:
            names, places = few([entry.connector for entry in alike]), few([entry.place for entry in alike])
            say(f"    {first.list} {len(alike)} connectors: {says}: {names} ({places})")
            continue
        for entry in alike:
            say(f"    {entry.list} {entry.connector}: {says} ({entry.place})")
            if entry.pending:
                count = number_of(len(entry.pending), "key")
                say(f"      {count} to be written with its next change: {few(entry.pending, 6)}", style="dim")


def _group_blocked(changes: Iterable[Change]) -> list[list[Change]]:
    groups: dict[object, list[Change]] = {}
    for change in changes:
        key = (change.reason, change.remedy) if change.action == "blocked" else id(change)
        groups.setdefault(key, []).append(change)
    return list(groups.values())


def _say_blocked(changes: Sequence[Change]) -> None:
    names = [change.connector for change in changes]
    say(f"  ! blocked {len(names)} connectors: {few(names)}  {changes[0].reason}", style=STYLES["blocked"])
    if changes[0].remedy:
        say(f"      fix: {changes[0].remedy}")
    for change in changes:
        _say_price(change.price)


def _say_warnings(changes: Iterable[Change]) -> None:
    names: dict[str, list[str]] = {}
    for change in changes:
        for warning in change.warnings:
            names.setdefault(warning, []).append(change.connector)
    for warning, connectors in names.items():
        count = f"{len(connectors)} connectors: " if len(connectors) > 1 else ""
        say(f"  ! warning {count}{few(connectors)}  {warning}", style="yellow")


def resting(changes: Iterable[Change]) -> list[str]:
    """Return what was paused or stopped by hand, which no apply changes, the connectors of one choice together."""
    names: dict[str, list[str]] = {}
    for change in changes:
        if change.rests:
            names.setdefault(change.rests, []).append(change.connector)
    return [f"{few(connectors)}: {rests}; it stays so until mm2mgr resume" for rests, connectors in names.items()]


def taken_texts(change: Change) -> Iterator[str]:
    """Yield what a connector begins to take: topics of another one go on at the stored offsets, others are copied."""
    if change.takes is None:
        return
    topics, moved = change.takes.topics, _moved_topics(change)
    if moved:
        count = number_of(sum(topics[topic][0] for topic in moved), "partition")
        yield (
            f"takes over {number_of(len(moved), 'topic')}, {count}, 0 to copy; goes on at the stored offsets:"
            f" {few(moved)}"
        )
    rest = {topic: counts for topic, counts in topics.items() if topic not in moved}
    stored = {topic: counts for topic, counts in rest.items() if topic in change.takes.stored}
    if stored:
        partitions, records = map(sum, zip(*stored.values(), strict=True))
        parts = f"{number_of(partitions, 'partition')}, {number_of(records, 'record')} behind"
        yield f"goes on with {number_of(len(stored), 'topic')} at the stored offsets, {parts}: {few(_largest(stored))}"
    if new := {topic: counts for topic, counts in rest.items() if topic not in stored}:
        partitions, records = map(sum, zip(*new.values(), strict=True))
        most = "at most " if new.keys() & set(change.needs_offsets) else ""
        parts = f"{number_of(partitions, 'partition')}, {most}{number_of(records, 'record')} to copy"
        yield f"takes {len(new)} of {change.takes.of} topics, {parts}: {few(_largest(new))}"


def end_texts(change: Change) -> Iterator[str]:
    """Yield what a connector mirrors no longer, and no other one takes."""
    if change.ends:
        topics = f"{number_of(len(change.ends), 'topic')}: {few(list(change.ends))}"
        yield f"no longer mirrors {topics}; what arrived, and the stored offsets, stay"


def _largest(topics: Mapping[str, tuple[int, int]]) -> list[str]:
    return sorted(topics, key=lambda name: (-topics[name][1], name))


_MOST_RENAMES, _MOST_OFFSETS = 10, 4


def rename_texts(renames: Sequence[RenamedTopic]) -> list[str]:
    """Say of each topic that gets another name where both names meet; of many only the first ones."""
    texts = [f"renames {renamed.old} -> {renamed.new}: {handover_text(renamed)}" for renamed in renames[:_MOST_RENAMES]]
    more = len(renames) - _MOST_RENAMES
    return [*texts, *([f"renames {number_of(more, 'more topic')}: -o json has them all"] if more > 0 else [])]


def handover_text(renamed: RenamedTopic) -> str:
    """Say where a topic goes on under its new name, partition by partition."""
    parts = [part for part in renamed.handovers if part.first is not None]
    if not parts:
        return "nothing is stored of it, so it begins as a new topic does"
    first = few([f"{part.partition}: {part.first}" for part in parts], _MOST_OFFSETS)
    ends = few([f"{part.partition}: {part.old_end}" for part in parts if part.old_end is not None], _MOST_OFFSETS)
    starts = few([f"{part.partition}: {part.new_start}" for part in parts if part.new_start], _MOST_OFFSETS)
    end = f"; consumers read the old name up to {ends}, then the new one from {starts or 'its start'}" if ends else ""
    moving = "" if renamed.is_final else "; RUNNING, so these still grow: mm2mgr stop makes them exact"
    return f"goes on with source offsets {first}{end}{moving}"


def _say_change(change: Change, *, full: bool) -> None:
    note = f"  ({number_of(len(change.keys), 'key')})" if change.keys else ""
    reason = f"  {change.reason}" if change.reason else ""
    line = f"  {_SIGNS[change.action]} {change.action:7} {change.connector}{note}{reason}"
    say(line, style=STYLES.get(change.action))
    if change.remedy:
        say(f"      fix: {change.remedy}")
    for text in taken_texts(change):
        say(f"      {text}")
    for text in end_texts(change):
        say(f"      {text}")
    for line in rename_texts(change.renames):
        say(f"      {line}")
    _say_price(change.price)
    if change.needs_offsets:
        say(
            f"      runs only if offsets of {few(change.needs_offsets)} are stored under its name: "
            "their records were mirrored before"
        )
    if change.action == "update" or full:
        for key in change.keys:
            say(f"      {_KEY_SIGNS[key.kind]} {key.key}: {_values(key)}{_origin(key)}")
    if change.state:
        before, after = change.state
        say(f"      ~ state: {before} -> {after}" if before else f"      + state: {after}")


def _origin(key: KeyChange) -> str:
    """Return the declared line that a value comes from; that of a default says nothing new in a change."""
    kind, _, place = key.origin.partition(" ")
    return f"  ({place})" if kind in {"spec", "override"} else ""


def _say_price(price: Price) -> None:
    if costs := price_text(price):
        say(f"      price: {costs}", style="yellow" if price.again else None)
    for step in price.irreversible:
        say(f"      cannot be undone: {step}", style="yellow")


def price_text(price: Price) -> str:
    """Say what a change, or several, cost besides what cannot be undone."""
    parts = []
    if price.again:
        parts.append(_again_text(price.again))
    if price.restarts:
        parts.append(f"restarts {number_of(price.restarts, 'task')}")
    if price.moved:
        parts.append(f"{price.moved} of {number_of(price.partitions, 'partition')} get another task")
    elif price.moved is None:
        parts.append("how many partitions get another task is not known")
    if price.groups:
        parts.append(f"checkpoints of {number_of(len(price.groups), 'group')} start anew ({few(price.groups)})")
    if price.group_patterns:
        parts.append(f"checkpoints of the groups {few(price.group_patterns)} start anew (how many could not be read)")
    return ", ".join(parts)


def _again_text(again: Volume) -> str:
    before = f"; before compression: {few(again.uncompressed)}" if again.uncompressed else ""
    measured = f"{number_of(again.records, 'record')} ({bytes_text(again.size_bytes)}{before})" if again.records else ""
    unknown = f"an unknown volume ({few(again.unmeasured)})" if again.unmeasured else ""
    return f"mirrors {' and '.join(filter(None, (measured, unknown))) or 'no record'} again"


def _values(key: KeyChange) -> str:
    before, after = (visible(text or "") for text in (key.masked_before, key.masked_after))
    if key.kind == "add":
        return short(after)
    if key.kind == "remove":
        return f"{short(before)} (removed)"
    if max(len(before), len(after)) > _LONGEST:  # two long values must not be cut to the same beginning
        alike = sum(1 for _ in takewhile(bool, map(eq, before, after)))
        skipped = alike - _CONTEXT
        before, after = (f"…{value[skipped:]}" if skipped > 0 else value for value in (before, after))
    return f"{short(before)} -> {short(after)}"


def short(text: str) -> str:
    """Cut a long value."""
    return fit_text(text, _LONGEST)


ALIKE = 5
"""More connectors than this in the same state share a line."""
