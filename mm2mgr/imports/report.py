"""The report of an import: what became of every key that was read, and what a person has to decide or to set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from mm2mgr.connectors import Connector, ConnectorType
from mm2mgr.defaults import Origin
from mm2mgr.errors import Mm2mgrError
from mm2mgr.formats import mm2_properties
from mm2mgr.formats.properties import Entry
from mm2mgr.formats.recognise import ForeignFile
from mm2mgr.formats.templates import template_in
from mm2mgr.imports.effects import PATTERNS, Effects, KeyReader, WorkerSetting, differs
from mm2mgr.imports.equivalence import Equivalence, SettingDifference
from mm2mgr.imports.estate import SWITCHES, ImportedEstate, LeftOut
from mm2mgr.imports.inputs import InputKey, Mirror, Placeholder
from mm2mgr.lint.findings import Finding
from mm2mgr.lint.reading import Surroundings, estate_of_files
from mm2mgr.lint.rules import RULES, lint
from mm2mgr.log_places import START_KEY
from mm2mgr.render import OWNER_KEY
from mm2mgr.secrets import mask
from mm2mgr.spec.places import PathKey
from mm2mgr.spec.scalars import is_name
from mm2mgr.truth.explain import REST_PREFIXES, explain, to_worker
from mm2mgr.truth.keys import load
from mm2mgr.truth.other_tools import other_tool

Outcome = Literal["kept", "nothing", "default", "lost", "different"]
OUTCOMES: Mapping[Outcome, str] = {
    "kept": "kept",
    "nothing": "did nothing",
    "default": "defaults",
    "lost": "cannot be kept",
    "different": "different on purpose",
}
"""What can become of a key, in the words of the report."""
_RESTARTS = "its tasks restart"
_KEPT_IDLE = "; kept, since without it its tasks would restart"
DECISIONS: tuple[Outcome, ...] = ("lost", "different")
_RELEASE = "let that tree release it, then write from_owner: {} into its entry under adopt:"
_ALL_TYPES: tuple[ConnectorType, ...] = ("source", "checkpoint", "heartbeat")


@dataclass(frozen=True)
class ReportRow:
    """What became of one key of an input. `where`: its path in the tree; `reason` and `fix` as far as there are any."""

    file: str
    line: int
    key: str
    outcome: Outcome
    where: str = ""
    reason: str = ""
    fix: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def needs_decision(self) -> bool:
        return self.outcome in DECISIONS


@dataclass(frozen=True)
class Advice:
    """What `lint` says of an input, which is imported as it behaves: nothing is improved in silence."""

    place: str
    rule: str
    severity: str
    message: str
    fix: str


@dataclass(frozen=True)
class ConnectorLeftOut:
    """A connector that the tree does not declare. `is_unneeded`: heartbeats that no flow mirrors."""

    connector: str
    place: str
    reason: str
    fix: str
    is_unneeded: bool = False

    @property
    def reason_of_keys(self) -> str:
        """What the row of each of its keys has as reason."""
        return f"{self.connector} is left out: {self.reason}"


@dataclass(frozen=True)
class ImportReport:
    """What became of every key. `notes` concern no single key; `placeholders` are variables that workers need.

    `differences` are what a client or a connector gets otherwise although no key of the inputs says it: by defaults,
    by its workers, or by what the tree cannot hold.
    """

    rows: tuple[ReportRow, ...]
    left_out: tuple[ConnectorLeftOut, ...] = ()
    placeholders: tuple[Placeholder, ...] = ()
    advice: tuple[Advice, ...] = ()
    notes: tuple[str, ...] = ()
    differences: tuple[SettingDifference, ...] = ()
    connectors: int = 0
    flows: int = 0
    comments: dict[PathKey, str] = field(default_factory=dict, repr=False, compare=False)
    json_keys = "summary rows left_out differences placeholders advice notes"

    @property
    def counts(self) -> Mapping[Outcome, int]:
        """How many keys had each outcome."""
        counted = Counter(row.outcome for row in self.rows)
        return {outcome: counted[outcome] for outcome in OUTCOMES}

    @property
    def decisions(self) -> int:
        """How many keys, connectors and differences a person must look at."""
        left_out = sum(not left.is_unneeded for left in self.left_out)
        return sum(row.needs_decision for row in self.rows) + left_out + len(self.differences)

    @property
    def summary(self) -> dict[str, int]:
        return {
            "keys": len(self.rows),
            **{str(outcome): count for outcome, count in self.counts.items()},
            "decisions": self.decisions,
            "connectors": self.connectors,
            "flows": self.flows,
        }

    @property
    def sum_line(self) -> str:
        """The counts as a sentence, such as `41 keys: 22 kept, 9 did nothing, 7 defaults, 3 need a decision`."""
        counts, needing = self.counts, sum(row.needs_decision for row in self.rows)
        parts = [f"{counts['kept']} kept", f"{counts['nothing']} did nothing", f"{counts['default']} defaults"]
        noun = "key" if len(self.rows) == 1 else "keys"
        return f"{len(self.rows)} {noun}: {', '.join(parts)}, {needing} need{'s' * (needing == 1)} a decision"


@dataclass(frozen=True)
class Judged:
    """An imported connector, the rendered one, and where each of them runs."""

    mirror: Mirror
    connector: Connector
    before: WorkerSetting
    after: WorkerSetting
    changed_by_plan: frozenset[str] = frozenset()
    """The keys for which a plan would write to it although it runs: what a tree cannot hold."""


@dataclass(frozen=True)
class TreeLine:
    """Where a value of the tree is."""

    path: PathKey
    file: str
    line: int


@dataclass(frozen=True)
class _Verdict:
    outcome: Outcome
    path: PathKey = ()
    reason: str = ""
    fix: str = ""


_RANK: Sequence[Outcome] = ("lost", "different", "kept", "default", "nothing")


def make_report(
    files: Sequence[ForeignFile],
    estate: ImportedEstate,
    judged: Sequence[Judged],
    lines: Sequence[TreeLine],
    version: str,
) -> ImportReport:
    """Return the report on every key of these files."""
    maker = _Maker(estate, lines)
    for pair in judged:
        maker.judge(pair)
    for left in estate.left_out:
        maker.leave_out(left)
    rows = {(row.file, row.line, row.key): row for row in maker.rows(files)}
    advice: list[Advice] = []
    for finding in advise(files, version):
        if finding.rule == "same-name":
            continue  # two Connect clusters may have the name; of one, the second connector is left out
        row = rows.get((finding.spot.file, finding.spot.line, finding.spot.key))
        if row and row.outcome == "nothing":  # lint says why, and what to write in this file
            reason = finding.message + (_KEPT_IDLE if row.where else "")
            rows[row.file, row.line, row.key] = replace(row, reason=reason, fix=finding.fix)
        else:
            more = f" (and {finding.more} more like this)" if finding.more else ""
            place = str(finding.spot)
            advice.append(Advice(place, finding.rule, finding.severity, finding.message + more, finding.fix))
    return ImportReport(
        tuple(rows.values()),
        tuple(ConnectorLeftOut(left.mirror.name, left.mirror.place, left.reason, left.fix) for left in estate.left_out),
        tuple(estate.placeholders),
        tuple(advice),
        tuple(_notes(files, estate)),
        (),
        estate.connectors,
        sum(len(pairs) for name, pairs in estate.flows.items() if name not in estate.lanes),
        maker.comments(),
    )


def with_comparison(report: ImportReport, compared: Equivalence) -> ImportReport:
    """Return a report that names all differences too, each at the key that decides it where there is one."""
    left_out = {left.connector for left in report.left_out}
    rows = {(row.file, row.line, row.key): row for row in report.rows}
    rest = [row for row in (*compared.differences, *compared.open) if row.key or row.connector not in left_out]
    rest = [row for row in rest if not _tell_at_key(row, rows)]
    unneeded = {(row.connector, f"{row.file}:{row.line}") for row in compared.on_purpose}
    lost = {row.reason for row in rows.values() if row.outcome == "lost"}  # a key for it alone was somebody's wish
    left = (
        replace(left, is_unneeded=(left.connector, left.place) in unneeded and left.reason_of_keys not in lost)
        for left in report.left_out
    )
    return replace(report, rows=tuple(rows.values()), differences=tuple(rest), left_out=tuple(left))


def _tell_at_key(difference: SettingDifference, rows: dict[tuple[str, int, str], ReportRow]) -> bool:
    """Tell a difference in the row of the key that decides it; False where no key does."""
    if not difference.written_as:
        return False
    here = [row for row in rows.values() if row.line == difference.line and row.file == difference.file]
    named = [row for row in here if row.key.endswith(difference.written_as)]
    for row in named or (here if len(here) == 1 else []):
        if not row.needs_decision:
            subject = f"the {difference.client}"
            reason = f"{subject} gets another {difference.key} than before: {difference.changes}"
            rows[row.file, row.line, row.key] = replace(row, outcome="lost", reason=reason)
        return True
    return False


def _notes(files: Sequence[ForeignFile], estate: ImportedEstate) -> Iterator[str]:
    for cluster in estate.clusters.values():
        for other in cluster.other_servers:  # one alias, several clusters: each connector keeps its own
            mine = ",".join(cluster.servers)
            most = f"most connectors have the brokers {mine}, others {other}"
            yield f"alias {cluster.alias}: {most}: these are kept verbatim"
    for connect in estate.connects.values():
        yield f"connect.{connect.name}: its workers are taken to use the Kafka {connect.kafka}: {connect.why_kafka}"
    for file in files:
        for connector in file.connectors:
            if connector.type is None:
                yield f"{file.path}:{connector.line}: {connector.name} is a {connector.class_name}, and not imported"


def advise(files: Sequence[ForeignFile], version: str) -> list[Finding]:
    """Return what lint finds wrong in these files, but for hints."""
    findings = lint(estate_of_files(files, Surroundings(version=version)), RULES)
    loud = (finding for finding in findings if finding.silenced is None and finding.severity != "info")
    return [finding for finding in loud if finding.rule != _REPLACED_RULE]


_REPLACED_RULE = "secret-in-clear"  # what an import itself replaces


class _Maker:
    def __init__(self, estate: ImportedEstate, lines: Sequence[TreeLine]) -> None:
        self.estate = estate
        self.verdicts: dict[InputKey, list[_Verdict]] = {}
        self.of_left_out: dict[InputKey, _Verdict] = {}
        self.paths: dict[tuple[str, int], PathKey] = {}
        self.by_path = {line.path: line for line in lines}
        for line in lines:
            here = (line.file, line.line)
            if line.path and not isinstance(line.path[-1], int) and len(line.path) > len(self.paths.get(here, ())):
                self.paths[here] = line.path

    # --- connectors ---------------------------------------------------------------------------------------------------

    def judge(self, judged: Judged) -> None:
        """Record what became of each key of a connector."""
        mirror = judged.mirror
        old = Effects(mirror.type, mirror.config, judged.before)
        new = Effects(mirror.type, judged.connector.config, judged.after)
        for key in mirror.config:
            if place := mirror.lines.get(key):
                self.verdicts.setdefault(place, []).append(self._verdict(judged, key, old, new))
        for entry in mirror.origin.entries if mirror.origin.start_group else ():
            if entry.key == "group.id":
                place = InputKey(entry.file or mirror.file, entry.line, entry.key)
                path = self._path_of(judged.connector.origins.get(START_KEY))
                self.verdicts[place] = [_Verdict("kept", path, "the flow goes on where this group is")]

    def leave_out(self, left: LeftOut) -> None:
        """Record that nothing of a connector is kept."""
        mirror = left.mirror
        setting = WorkerSetting(mirror.version, mirror.workers, mirror.exactly_once)
        effects = Effects(mirror.type, mirror.config, setting)
        for key in mirror.config:
            if place := mirror.lines.get(key):
                does = effects.readers(key) or key in _IDENTITY
                reason = ConnectorLeftOut(mirror.name, mirror.place, left.reason, left.fix).reason_of_keys
                verdict = _Verdict("lost", reason=reason, fix=left.fix)
                verdict = verdict if does else _Verdict("nothing", reason=_dead(mirror, key))
                self.of_left_out.setdefault(place, verdict)

    def _verdict(self, judged: Judged, key: str, old: Effects, new: Effects) -> _Verdict:  # noqa: PLR0911
        mirror, origins = judged.mirror, judged.connector.origins
        if key in _IDENTITY or key.startswith("mm2mgr."):
            return self._identity(judged, key)
        readers = old.readers(key)
        if not readers and mirror.is_dedicated and key in SWITCHES.values():
            type_ = next(type_ for type_, switch in SWITCHES.items() if switch == key)
            if type_ == "heartbeat" or mirror.config[key].strip().lower() == "false":
                return _Verdict("kept", reason=f"it decides which {type_} connectors there are")
        if not readers:
            return self._of_no_reader(judged, key, old.outranked_by(key))
        differing = [reader for reader in readers if differs(reader, old, new)]
        if differing:
            fix = "write in the tree what the template fills in" if template_in(mirror.config[key]) else ""
            return _Verdict("lost", reason=_loss(differing[0], old, new), fix=fix)
        path = self._path(readers, new, origins)
        if key in mirror.replaced:
            reason = "a clear secret or a template: the tree has a placeholder, which the workers must resolve"
            return _Verdict("different", path, reason, "set the variable on the workers")
        if key in PATTERNS and (names := _loose_names(mirror.config[key])):
            reason = f"the dot in {names[0]} matches any character today, and only a dot in the tree"
            return _Verdict("different", path, reason, f"to keep it, write (?:{names[0]})")
        if key in mirror.slips:
            reason = f"kept as Kafka reads it, which is not what was meant: {mask(key, mirror.slips[key])}"
            return _Verdict("different", path, reason)
        if not path and all(old.value(reader) is None for reader in readers):
            return _Verdict("nothing", reason="what reads it is switched off, or has another security.protocol")
        if not path and all(old.has_default(reader) for reader in readers):
            return _Verdict("default", path, "Kafka's default")
        return _Verdict("kept", path, "" if path else "mm2mgr does the same by itself")

    def _of_no_reader(self, judged: Judged, key: str, outranking: str) -> _Verdict:
        mirror = judged.mirror
        reason, fix = (f"{outranking} outranks it", f"remove {key}") if outranking else ("", "")
        reason, fix = reason or _dead(mirror, key), fix or _instead(mirror, key)
        if key in judged.changed_by_plan:
            return _Verdict("lost", (), f"{reason}; a tree cannot hold it, so an apply takes it out: {_RESTARTS}", fix)
        path = self._path_of(judged.connector.origins.get(key))
        return _Verdict("nothing", path, reason + (_KEPT_IDLE if path else ""), fix)

    def _identity(self, judged: Judged, key: str) -> _Verdict:
        mirror = judged.mirror
        if key == OWNER_KEY and mirror.config[key] != self.estate.owner:
            reason = f"the tree of {mirror.config[key]} writes this connector, so plan blocks its adoption"
            return _Verdict("different", ("adopt",), reason, _RELEASE.format(mirror.config[key]))
        if key in ("source.cluster.alias", "target.cluster.alias"):
            alias = mirror.source if key.startswith("source") else mirror.target
            return _Verdict("kept", ("clusters", alias))
        origin = judged.connector.origins.get("name" if key == "name" else key)
        return _Verdict("kept", self._path_of(origin), "" if origin else "mm2mgr writes it itself")

    def _path(self, readers: Sequence[KeyReader], new: Effects, origins: Mapping[str, Origin]) -> PathKey:
        """Return where a value is in the tree, () where none of its lines says it."""
        for reader in readers:
            key = reader.plain if not reader.client else self._winner(new, reader)
            if key and key in new.config and (path := self._path_of(origins.get(key))):
                return path
        return ()

    def _winner(self, new: Effects, reader: KeyReader) -> str:
        client = new.clients.get(reader.client)
        return client.written.get(reader.plain, "") if client else ""

    def _path_of(self, origin: Origin | None) -> PathKey:
        if origin is None or origin.kind != "spec":
            return ()
        file, _, line = origin.where.rpartition(":")
        return self.paths.get((file, int(line)), ()) if line.isdigit() else ()

    # --- rows ---------------------------------------------------------------------------------------------------------

    def rows(self, files: Sequence[ForeignFile]) -> Iterator[ReportRow]:
        """Yield a row for every key of the files, in their order."""
        for file in files:
            for place, entry, is_last in _input_keys(file):
                if not is_last:
                    yield _row(place, _Verdict("nothing", reason="a later line has the same key", fix="remove it"))
                elif verdicts := self.verdicts_on(place):
                    yield _row(place, min(verdicts, key=lambda verdict: _RANK.index(verdict.outcome)))
                elif file.syntax == "dedicated":
                    yield _row(place, _of_driver(file, entry, self.estate))
                else:
                    yield _row(place, _Verdict("nothing", reason="the connector does not get it"))

    def verdicts_on(self, place: InputKey) -> list[_Verdict]:
        """Return what became of a key; connectors left out decide where it does nothing for all others."""
        verdicts, left_out = self.verdicts.get(place, []), self.of_left_out.get(place)
        return [left_out] if left_out and all(verdict.outcome == "nothing" for verdict in verdicts) else verdicts

    def comments(self) -> dict[PathKey, str]:
        """Return the origin of each value of the tree: the first key that it is from, and how many more there are."""
        origins: dict[PathKey, dict[str, None]] = {}
        for place, verdicts in self.verdicts.items():
            for verdict in verdicts:
                if verdict.path and verdict.path[0] != "adopt":
                    origins.setdefault(verdict.path, {})[place.place] = None
        return {path: _origin_text(list(places)) for path, places in origins.items()}


def _origin_text(places: Sequence[str]) -> str:
    more = len(places) - 1
    return places[0] + (f" and {more} more" if more else "")


_IDENTITY = frozenset({"name", "connector.class", "source.cluster.alias", "target.cluster.alias"})


def _row(place: InputKey, verdict: _Verdict) -> ReportRow:
    where = ".".join(str(key) for key in verdict.path)
    return ReportRow(place.file, place.line, place.key, verdict.outcome, where, verdict.reason, verdict.fix)


def _input_keys(file: ForeignFile) -> Iterator[tuple[InputKey, Entry, bool]]:
    """Yield the keys of a file, each once; False for one that a later line of the same key replaces."""
    groups: list[Iterable[Entry]] = [file.entries] if file.syntax == "dedicated" else []
    if file.syntax != "dedicated":
        groups = [(*connector.entries, *connector.unused) for connector in file.connectors if connector.type]
    yielded_keys: set[InputKey] = set()
    for group in groups:
        last = {(entry.file, entry.key): entry.line for entry in group}
        for entry in group:
            place = InputKey(entry.file or file.path, entry.line, entry.key)
            is_written = bool(entry.path) or file.syntax not in ("json", "yaml")
            if is_written and place not in yielded_keys:
                yielded_keys.add(place)
                yield place, entry, last[entry.file, entry.key] == entry.line


# --- reasons ----------------------------------------------------------------------------------------------------------


def _dead(mirror: Mirror, key: str) -> str:
    """Return why a key does nothing."""
    place = mirror.lines.get(key)
    written = place.key if place else key
    if tool := other_tool(written):
        return f"a key of {tool[0] or 'no tool'}, which MirrorMaker does not read"
    try:
        verdict = explain(key, [mirror.type], mirror.version, load()).verdict
    except Mm2mgrError as error:
        return error.message
    _, colon, reason = verdict.partition("does nothing: ")
    if reason.endswith("does not have it") and (history := load().history(mirror.type, key)):
        lines = history[0].exists_in
        return f"{reason}: {lines[0]} to {lines[-1]} do"
    return reason if colon else f"no client of this connector reads it in Kafka {mirror.version}"


def _instead(mirror: Mirror, key: str) -> str:
    if (tool := other_tool(key)) and tool[1]:
        return f"MirrorMaker's own key is {tool[1]}"
    try:
        instead = explain(key, [mirror.type], mirror.version, load()).instead
    except Mm2mgrError as error:
        return error.hint or ""
    return next((f"write {way.yaml}" for way in instead if way.yaml), "")


def _loss(reader: KeyReader, old: Effects, new: Effects) -> str:
    subject = f"the {reader.client}" if reader.client else "the connector"
    return f"{subject} gets another {reader.plain} than before"


def _loose_names(text: str) -> list[str]:
    items = (item.strip() for item in text.split(","))
    return [item for item in items if is_name(item) and "." in item]


def _of_driver(file: ForeignFile, entry: Entry, estate: ImportedEstate) -> _Verdict:  # noqa: PLR0911  one per kind
    """Return what became of a line of mm2.properties that no connector has."""
    dedicated = mm2_properties.Dedicated(file.entries)
    line = dedicated.lines.get(entry.key)
    aliases, plain = (line.aliases, line.plain) if line else ((), entry.key)
    if entry.key == "clusters":
        return _Verdict("kept", ("clusters",))
    if right := dedicated.misspelt(entry):
        return _Verdict(
            "nothing", reason="the driver does not know this spelling of a pair's line", fix=f"write {right}"
        )
    if aliases and not set(aliases) <= set(dedicated.clusters):
        names = ", ".join(alias for alias in aliases if alias not in dedicated.clusters)
        return _Verdict("nothing", reason=f"clusters does not list {names}", fix=f"add {names} to clusters")
    if plain == "enabled" and len(aliases) == 2:
        is_on = dedicated.is_enabled(*aliases)
        return _Verdict("kept", ("flows",), "" if is_on else "the pair is off, and so in no flow")
    if entry.key == "dedicated.mode.enable.internal.rest" or entry.key.startswith(REST_PREFIXES):
        return _Verdict("nothing", reason="of dedicated mode only: on Connect the workers have their REST API")
    if len(aliases) < 2 and (to_worker(plain) or load().history("worker", plain)):
        return _Verdict("nothing", reason="of dedicated mode's own workers: yours have their own properties")
    if len(aliases) == 2 and not dedicated.is_enabled(*aliases):
        return _Verdict("nothing", reason="the pair is off")
    named = "".join(f"{alias.replace('.', '-')}->" for alias in aliases).removesuffix("->")
    try:  # which takes the first dot for the end of the aliases
        verdict = explain(f"{named}.{plain}" if named else plain, _ALL_TYPES, load().lines[-1], load()).verdict
    except Mm2mgrError as error:
        return _Verdict("nothing", reason=error.message, fix=error.hint or "")
    if aliases and set(aliases) <= set(dedicated.clusters) and not any(alias in estate.clusters for alias in aliases):
        return _Verdict("nothing", reason="no pair of this cluster is on")
    if mm2_properties.is_ignored(entry.key) or entry.key.partition(".")[0] in ("producer", "consumer", "admin"):
        return _Verdict("nothing", reason="the driver gives a line without a cluster's name to no client")
    return _Verdict(
        "nothing", reason=verdict.partition("does nothing: ")[2] or "no connector of a pair that is on gets it"
    )
