"""Joins connectors of files with what is known around them into an Estate, and that with what runs on Connect.

Several files are one estate. One SpecError reports every file that cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeVar

from mm2mgr.connectors import CLASSES, PACKAGE, Connector
from mm2mgr.errors import Problem, SpecError
from mm2mgr.files import list_paths
from mm2mgr.formats.connectors import FoundConnector, FoundWorkers
from mm2mgr.formats.mm2_properties import Line
from mm2mgr.formats.properties import BLANKS, LINE_END, as_typed, last, meant_value, read
from mm2mgr.formats.recognise import TREE_KEYS, ForeignFile, has_config, holds_config, read_text, wrong
from mm2mgr.formats.sources import is_folder_of_configs, read_sources
from mm2mgr.formats.templates import is_open
from mm2mgr.lint.subject import Estate, KafkaFacts, LinkFacts, Silence, SourceFile, Spot, Subject, WorkerFacts
from mm2mgr.secrets import is_secret
from mm2mgr.spec.places import read_yaml
from mm2mgr.text import nearest

SILENCE_KEY = "mm2mgr.silence."
_SILENCE = re.compile(r"[#!]\s*mm2mgr:\s*silence\s+(?P<rule>[\w.-]+)[ \t]*(?P<reason>.*)")


def silences_of(text: str, file: str, *, inline: bool = False) -> tuple[Silence, ...]:
    """Return the silences in comments such as `# mm2mgr: silence RULE reason`; `inline`: also after a value (YAML).

    The place of a silence is the end of its block of comment lines, so that several can precede one key.
    """
    if "mm2mgr:" not in text:
        return ()
    lines = LINE_END.split(text)
    return tuple(_in_comments(lines, file, inline=inline))


def _in_comments(lines: Sequence[str], file: str, *, inline: bool) -> Iterator[Silence]:
    for index, line in enumerate(lines):
        alone = line.lstrip(BLANKS)[:1] in ("#", "!")
        silence = _SILENCE.match(line.lstrip(BLANKS)) if alone else _SILENCE.search(line) if inline else None
        if silence:
            end = index
            while alone and end + 1 < len(lines) and lines[end + 1].lstrip(BLANKS)[:1] in ("#", "!"):
                end += 1
            yield Silence(silence["rule"], as_typed(silence["reason"].strip()), Spot(file, end + 1))


_POLICY_KEY = "connector.client.config.override.policy"


@dataclass(frozen=True)
class Surroundings:
    """What is known besides the files. `version` is the Kafka version of the workers; it overrides that of `worker`."""

    version: str | None = None
    worker: WorkerFacts = field(default_factory=WorkerFacts)
    wire: LinkFacts | None = None
    source: KafkaFacts = field(default_factory=KafkaFacts)
    target: KafkaFacts = field(default_factory=KafkaFacts)

    def surround(self, subject: Subject) -> Subject:
        """Return a connector of a file with what is known around it."""
        worker = self.worker if subject.worker == WorkerFacts() else subject.worker
        return replace(
            subject,
            worker=replace(worker, version=self.version or worker.version or self.worker.version),
            source_kafka=self.source,
            target_kafka=self.target,
            wire=self.wire,
        )


def subject_of(connector: FoundConnector, place: Spot, worker: WorkerFacts | None = None) -> Subject | None:
    """Return a connector of the file or the Connect cluster at `place` as lint sees it, None for one of another plugin.

    `worker` is what its workers report, else what the file says. JSON has no comments: config keys silence rules.
    """
    if connector.type is None or connector.form == "mirrormaker1":
        return None
    at = place if connector.form == "dedicated" else replace(place, connector=connector.name)
    spots = {
        key: replace(at, file=line.file or at.file, line=line.line, key=line.key, column=line.column)
        for key, line in connector.lines.items()
    }
    silences = (
        Silence(key.removeprefix(SILENCE_KEY), reason.strip(), spots.get(key, at.with_key(key)))
        for key, reason in connector.config.items()
        if key.startswith(SILENCE_KEY)
    )
    return Subject(
        Connector(connector.name, connector.type, config=_without_sensitive(connector)),
        replace(at, line=connector.line),
        spots,
        connector.form,
        worker or _facts(connector.workers),
        state=connector.state,
        scopes={key: line.aliases for key, line in connector.lines.items() if isinstance(line, Line)},
        silences=tuple(silences),
        home=connector.home,
        unused=connector.unused,
        paths={**connector.places, **{key: line.path for key, line in connector.lines.items() if line.path}},
        resource=connector.resource,
    )


def _without_sensitive(connector: FoundConnector) -> Mapping[str, str]:
    """Return a config in which what its file marks as secret is a placeholder: no rule may repeat a part of it."""
    hidden = {key for key in connector.sensitive if not is_secret(key) and not is_open(connector.config.get(key, ""))}
    if not hidden:
        return connector.config
    return {key: f"${{sensitive:{key}}}" if key in hidden else value for key, value in connector.config.items()}


def running_subject(
    connect: str, name: str, config: Mapping[str, str], state: str | None, worker: WorkerFacts
) -> Subject | None:
    """Return a connector that runs as lint sees it, None for one that is not MirrorMaker's."""
    found = FoundConnector(name, config.get("connector.class", ""), config, state=state)
    return subject_of(found, Spot(connect=connect), worker)


def _facts(workers: FoundWorkers | None) -> WorkerFacts:
    if workers is None:
        return WorkerFacts()
    return WorkerFacts(workers.version, workers.properties, workers.policy, exactly_once=workers.exactly_once)


def read_files(
    paths: Sequence[Path],
    surroundings: Surroundings = Surroundings(),
    contents: Mapping[str, bytes] = MappingProxyType({}),
) -> Estate:
    """Read every file; connectors of other plugins are skipped. Raises SpecError with all that is unreadable.

    `contents` are read instead of the files of these names.
    """
    hint = "give a connector's JSON or properties file, or an mm2.properties"
    try:
        sources = read_sources(paths, contents, topics=".*")  # of MirrorMaker 1, which is told apart below
    except SpecError as error:
        raise SpecError(error.problems, hint=error.hint or hint) from error
    files_read, problems = sources.files, list[Problem]()
    estate = estate_of_files(files_read, surroundings)
    if not estate.files:
        if any(connector.form == "mirrormaker1" for file in files_read for connector in file.connectors):
            of = next(file for file in files_read if file.connectors)
            raise wrong(of.path, "is MirrorMaker 1, which no connector and no rule is about; mm2mgr import reads it")
        for unused in files_read:
            classes = ", ".join(dict.fromkeys(other.class_name for other in unused.connectors))
            held = f"it has {classes}" if classes else "no connector runs because of it"
            simple = (other.class_name.strip("\"'").rpartition(".")[2] for other in unused.connectors)
            near = next((name for class_name in simple for name in nearest(class_name, CLASSES, 0.9)), "")
            held += f"; write {PACKAGE}.{near}, without quotes" if near else ""
            problems.append(Problem(unused.path, f"holds no MirrorMaker connector: {held}"))
    if problems:
        raise SpecError(problems, hint=hint)
    return replace(estate, notes=sources.notes)


def estate_of_files(files: Sequence[ForeignFile], surroundings: Surroundings = Surroundings()) -> Estate:
    """Return the connectors of files that were read; those of other plugins are left out."""
    subjects = (subject_of(connector, Spot(file.path)) for file in files for connector in file.connectors)
    return Estate(
        tuple(surroundings.surround(subject) for subject in subjects if subject),
        tuple(source for file in files for source in _source_files(file)),
    )


def _source_files(file: ForeignFile) -> Iterator[SourceFile]:
    """Yield the entries that rules about files look at: of each connector its own, of mm2.properties all together."""
    silences = silences_of(file.text, file.path, inline=file.syntax == "yaml")
    if file.syntax == "dedicated":
        yield SourceFile(file.path, "dedicated", file.entries, silences)
        return
    kind: Literal["properties", "json"] = "properties" if file.syntax == "properties" else "json"
    if kind == "properties" and not file.text:
        return  # what runs on Connect, or a MirrorMaker 1 of several files: no line of it was read from a file
    for connector in file.connectors:
        if connector.type and connector.form != "mirrormaker1":
            # Without a home no machine changes it: it is in a text within the file, or in Terraform's state.
            fixed = kind == "json" and not connector.home
            entries = tuple(replace(entry, path=()) for entry in connector.entries) if fixed else connector.entries
            yield SourceFile(file.path, kind, entries, silences)


def read_worker(path: Path) -> WorkerFacts:
    """Read the properties of Connect workers (connect-distributed.properties); SpecError for another kind of file."""
    file = str(path)
    values = {key: meant_value(entry) for key, entry in last(read(read_text(path), file)).items()}
    for key, kind in (("connector.class", "a connector's config"), ("clusters", "an mm2.properties")):
        if key in values:
            raise wrong(file, f"is {kind}, not the properties of Connect workers: give it as a file to lint")
    if "bootstrap.servers" not in values:
        raise wrong(file, "has no bootstrap.servers: give the properties file that the Connect workers start with")
    policy = values.get(_POLICY_KEY, "All").strip().rpartition(".")[2]
    return _facts(FoundWorkers(values, policy=policy.removesuffix("ConnectorClientConfigOverridePolicy")))


Facts = TypeVar("Facts", WorkerFacts, KafkaFacts)


def is_tree(path: Path) -> bool:
    """Tell whether a path is a tree for mm2mgr: YAML that is no resource of Kubernetes, or a folder with such files."""
    if path.is_dir():
        return any(map(is_tree, list_paths(path, "*.y*ml"))) or not is_folder_of_configs(path)
    if path.suffix.lower() not in {".yaml", ".yml"} or not path.exists():
        return False
    try:
        documents = read_yaml(path)
    except SpecError:
        return not holds_config(path)  # the tree's reader reports what is wrong, with its place
    keys = {key for document in documents for key in document.values}
    if not keys & TREE_KEYS or keys & {"kind", "apiVersion"}:
        return False
    return not any(has_config(document.values) for document in documents)


def fill_in(estate: Estate, surroundings: Surroundings) -> Estate:
    """Fill in unknown facts from what the user knows; the user's Kafka version wins, so an upgrade can be tried."""
    if surroundings == Surroundings():
        return estate
    return replace(estate, subjects=tuple(_fill_in_subject(subject, surroundings) for subject in estate.subjects))


def _fill_in_subject(subject: Subject, surroundings: Surroundings) -> Subject:
    worker = _fill_in_facts(subject.worker, surroundings.worker)
    return replace(
        subject,
        worker=replace(worker, version=surroundings.version or worker.version),
        source_kafka=_fill_in_facts(subject.source_kafka, surroundings.source),
        target_kafka=_fill_in_facts(subject.target_kafka, surroundings.target),
        wire=subject.wire or surroundings.wire,
    )


def _fill_in_facts(own: Facts, other: Facts) -> Facts:
    missing = [fact.name for fact in fields(own) if getattr(own, fact.name) in (None, {})]
    return replace(own, **{name: getattr(other, name) for name in missing})


def join_estates(declared: Sequence[Estate], live: Sequence[Estate]) -> tuple[list[Estate], tuple[Subject, ...]]:
    """Return the estates, each connector once, and the connectors that run with another config than the declared one.

    A connector that is declared and runs counts as declared, with the real workers' facts; twice it would mirror twice.
    """
    running: dict[tuple[str, ...], list[Subject]] = {}
    for subject in (subject for estate in live for subject in estate.subjects):
        running.setdefault(_identity(subject), []).append(subject)
    twins = {subject: twin for estate in declared for subject in estate.subjects if (twin := _twin(subject, running))}
    informed = {
        subject: replace(subject, worker=_fill_in_facts(twin.worker, subject.worker)) for subject, twin in twins.items()
    }
    gone = set(twins.values())
    estates = [
        replace(estate, subjects=tuple(informed.get(subject, subject) for subject in estate.subjects))
        for estate in declared
    ]
    estates += [
        replace(estate, subjects=tuple(subject for subject in estate.subjects if subject not in gone))
        for estate in live
    ]
    return estates, tuple(twin for subject, twin in twins.items() if dict(twin.config) != dict(subject.config))


def _identity(subject: Subject) -> tuple[str, ...]:
    return subject.name, subject.type, subject.source, subject.target


def _twin(subject: Subject, running: Mapping[tuple[str, ...], Sequence[Subject]]) -> Subject | None:
    """Return the running connector of a declared one; None where several Connect clusters run it undeclared."""
    candidates = running.get(_identity(subject), ())
    here = [candidate for candidate in candidates if candidate.spot.connect == subject.connector.connect] or candidates
    return here[0] if len(here) == 1 else None
