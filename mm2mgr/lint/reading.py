"""Reads files of MirrorMaker connectors into an Estate: JSON, properties, mm2.properties, Strimzi resources, recognised by content.

Several files are one estate, joined with what runs on Connect and what the user knows. One SpecError reports every file that cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypeVar

from mm2mgr.errors import Problem, SpecError
from mm2mgr.files import Unreadable, read_bytes
from mm2mgr.formats import documents, mm2_properties, properties, strimzi
from mm2mgr.formats.connectors import FoundConnector
from mm2mgr.formats.documents import Node
from mm2mgr.formats.properties import BLANKS, LINE_END, as_typed
from mm2mgr.lint.subject import Estate, KafkaFacts, LinkFacts, Silence, SourceFile, Spot, Subject, WorkerFacts
from mm2mgr.spec.places import MOST_BYTES, Place, read_yaml
from mm2mgr.truth.reach import type_of

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
        found = _SILENCE.match(line.lstrip(BLANKS)) if alone else _SILENCE.search(line) if inline else None
        if found:
            end = index
            while alone and end + 1 < len(lines) and lines[end + 1].lstrip(BLANKS)[:1] in ("#", "!"):
                end += 1
            yield Silence(found["rule"], as_typed(found["reason"].strip()), Spot(file, end + 1))


TREE_KEYS = frozenset({"owner", "defaults", "clusters", "connect", "links", "flows", "sizing"})
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_YAML = re.compile(r"\A(\s*#.*\n|\s*\n)*(---|apiVersion\s*:\s|kind\s*:\s)")
_PAIR = re.compile(r"[^\s.>-][^\s>]*->[^\s]+\.")
_POLICY_KEY = "connector.client.config.override.policy"


@dataclass(frozen=True)
class Surroundings:
    """What is known besides the files. `version` is the Kafka version of the workers; it overrides that of `worker`."""

    version: str | None = None
    worker: WorkerFacts = field(default_factory=WorkerFacts)
    wire: LinkFacts | None = None
    source: KafkaFacts = field(default_factory=KafkaFacts)
    target: KafkaFacts = field(default_factory=KafkaFacts)

    def around(self, subject: Subject, worker: WorkerFacts) -> Subject:
        """Return a connector of a file with its workers, what is known around it, and the silences of its config (JSON has no comments)."""
        version = self.version or worker.version or self.worker.version
        silences = (
            Silence(key.removeprefix(SILENCE_KEY), value.strip(), subject.spot_of(key))
            for key, value in subject.config.items()
            if key.startswith(SILENCE_KEY)
        )
        return replace(
            subject,
            worker=replace(worker, version=version),
            source_kafka=self.source,
            target_kafka=self.target,
            wire=self.wire,
            silences=tuple(silences),
        )


@dataclass(frozen=True)
class _FileContents:
    """The content of one file. `strangers` are classes of other plugins."""

    file: str
    subjects: tuple[Subject, ...] = ()
    files: tuple[SourceFile, ...] = ()
    strangers: tuple[str, ...] = ()


def read_files(paths: Sequence[Path], surroundings: Surroundings = Surroundings()) -> Estate:
    """Read every file; connectors of other plugins are skipped. Raises SpecError with the place of everything unreadable."""
    read: list[_FileContents] = []
    problems: list[Problem] = []
    for path in dict.fromkeys(paths):
        try:
            read.append(_read(str(path), _text(path), surroundings))
        except SpecError as error:
            problems += error.problems
    subjects = tuple(subject for each in read for subject in each.subjects)
    files = tuple(file for each in read for file in each.files)
    if not files and not problems:
        for each in read:
            classes = ", ".join(dict.fromkeys(each.strangers))
            held = f"it has {classes}" if classes else "no connector runs because of it"
            problems.append(Problem(each.file, f"holds no MirrorMaker connector: {held}"))
    if problems:
        raise SpecError(problems, hint="give a connector's JSON or properties file, or an mm2.properties")
    return Estate(subjects, files)


def read_worker(path: Path) -> WorkerFacts:
    """Read the properties of Connect workers (connect-distributed.properties). Raises SpecError when it is another kind of file."""
    file = str(path)
    values = {
        key: properties.meant(entry) for key, entry in properties.last(properties.read(_text(path), file)).items()
    }
    for key, kind in (("connector.class", "a connector's config"), ("clusters", "an mm2.properties")):
        if key in values:
            raise _error(file, f"is {kind}, not the properties of Connect workers: give it as a file to lint")
    if "bootstrap.servers" not in values:
        raise _error(file, "has no bootstrap.servers: give the properties file that the Connect workers start with")
    support = values.get("exactly.once.source.support", "disabled").strip().lower()
    policy = values.get(_POLICY_KEY, "All").strip().rpartition(".")[2]
    policy = policy.removesuffix("ConnectorClientConfigOverridePolicy")
    return WorkerFacts(properties=values, policy=policy, exactly_once=support == "enabled")


# --- bytes and kinds --------------------------------------------------------------------------------------------------


def _error(file: str, message: str, line: int = 0) -> SpecError:
    """Return an error about a file as a whole, or about one of its lines."""
    return SpecError([Problem(Place(file, line, 1) if line else file, message)])


def _text(path: Path) -> str:
    """Return a file as Java reads properties, byte for character (ISO-8859-1); JSON is decoded again."""
    file = str(path)
    try:
        if path.is_dir():
            raise _error(file, "is a folder: name the files in it")
        data = read_bytes(path, MOST_BYTES)
    except Unreadable as error:
        raise _error(file, str(error)) from error
    if data.startswith(_UTF16):
        raise _error(file, "is UTF-16 text, which neither Kafka nor Connect reads: save it as UTF-8")
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise _error(file, "holds a NUL byte, so it is no text: is it compressed, or UTF-16?", line)
    if not data.strip():
        raise _error(file, "is empty")
    return data.decode("iso-8859-1")


def _read(file: str, text: str, surroundings: Surroundings) -> _FileContents:
    if text.lstrip("ï»¿ \t\r\n")[:1] in ("{", "["):
        return _wrapped(file, [documents.parse(_utf8(file, text), file)], (), surroundings)
    if file.lower().endswith((".yaml", ".yml")) or _YAML.match(text):
        return _yaml(file, text, surroundings)
    if text.startswith("ï»¿"):
        raise _error(
            file, "starts with a byte order mark, which Java takes for a part of the first key: save it without"
        )
    return _properties(file, text, surroundings)


def _utf8(file: str, text: str) -> str:
    data = text.encode("iso-8859-1")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _error(file, f"is not UTF-8 text, which JSON and YAML have to be (byte {error.start})", line) from error


# --- properties -------------------------------------------------------------------------------------------------------


def _properties(file: str, text: str, surroundings: Surroundings) -> _FileContents:
    entries = properties.read(text, file)
    silences = silences_of(text, file)
    if any(entry.key == "clusters" or _PAIR.match(entry.key) for entry in entries):
        driven = mm2_properties.connectors(mm2_properties.Dedicated(entries))
        subjects = tuple(_of_driver(file, each, surroundings) for each in driven)
        return _FileContents(file, subjects, (SourceFile(file, "dedicated", entries, silences),))
    kept = properties.last(entries)
    values = {key: properties.meant(entry) for key, entry in kept.items()}
    class_name = values.get("connector.class", "")
    if not class_name:
        raise _error(file, _not_a_connector(values))
    if type_of(class_name) is None:
        return _FileContents(file, strangers=(class_name,))
    found = FoundConnector(values.get("name", "").strip(), class_name, entries, kept["connector.class"].line)
    subject = surroundings.around(_subject(file, found, values), surroundings.worker)
    return _FileContents(file, (subject,), (SourceFile(file, "properties", entries, silences),))


def _not_a_connector(values: Mapping[str, str]) -> str:
    if "bootstrap.servers" in values or "group.id" in values:
        return "has no connector.class: it looks like the properties of Connect workers, which --worker takes"
    return "is neither a connector's config (no connector.class) nor an mm2.properties (no clusters)"


def _of_driver(file: str, each: mm2_properties.Derived, surroundings: Surroundings) -> Subject:
    support = each.worker.get(mm2_properties.EXACTLY_ONCE_KEY, "disabled").strip().lower()
    worker = WorkerFacts(properties=each.worker, policy="All", exactly_once=support == "enabled")
    spots = {key: Spot(file, entry.line, key=entry.key) for key, entry in each.lines.items()}
    name, place = f"{each.pair} {each.config['name']}", Spot(file, each.place.line)
    return surroundings.around(Subject(name, each.type, each.config, place, spots, "dedicated"), worker)


# --- JSON and YAML ----------------------------------------------------------------------------------------------------


def _yaml(file: str, text: str, surroundings: Surroundings) -> _FileContents:
    read = read_yaml(Path(file), text.encode("iso-8859-1"))
    for document in read:
        if document.values.keys() <= TREE_KEYS:
            raise _error(file, "is a part of an mm2mgr tree: name it with -f/--clusters")
    try:
        nodes = [documents.of_yaml(document) for document in read]
        return _wrapped(file, nodes, silences_of(_utf8(file, text), file, inline=True), surroundings)
    except RecursionError as error:
        raise _error(file, "nested too deeply") from error


def _wrapped(
    file: str, roots: Sequence[Node], silences: tuple[Silence, ...], surroundings: Surroundings
) -> _FileContents:
    found, workers = _found(file, roots)
    if not found and not workers:
        raise _error(file, "holds no connector: nothing in it has a connector.class")
    ours = [each for each in found if type_of(each.class_name)]
    subjects, files = [], []
    for each in ours:
        values = {entry.key: entry.value for entry in each.entries if entry.raw != "null"}
        worker = workers.get(each.owner, surroundings.worker)
        subjects.append(surroundings.around(_subject(file, each, values), worker))
        files.append(SourceFile(file, "json", each.entries, silences))
    strangers = tuple(each.class_name for each in found if not type_of(each.class_name))
    return _FileContents(file, tuple(subjects), tuple(files), strangers)


def _found(file: str, roots: Sequence[Node]) -> tuple[list[FoundConnector], dict[str, WorkerFacts]]:
    found: list[FoundConnector] = []
    workers: dict[str, WorkerFacts] = {}
    for root in roots:
        of_operator = [node for node in (list(strimzi.resources(root)) or [root]) if strimzi.is_resource(node)]
        for resource in map(strimzi.read_resource, of_operator):
            found += resource.connectors
            workers |= {
                name: WorkerFacts(each.version, each.properties, exactly_once=each.exactly_once)
                for name, each in resource.workers.items()
            }
        if not of_operator:
            found += documents.connectors(root, Path(file).stem)
    return found, workers


def _subject(file: str, found: FoundConnector, config: Mapping[str, str]) -> Subject:
    type_ = type_of(found.class_name)
    assert type_ is not None
    place = Spot(file, found.line, connector=found.name)
    spots = {entry.key: Spot(file, entry.line, connector=found.name, key=entry.key) for entry in found.entries}
    return Subject(found.name, type_, config, place, spots, state=found.state)


Facts = TypeVar("Facts", WorkerFacts, KafkaFacts)


def is_tree(path: Path) -> bool:
    """Tell whether a path is a tree for mm2mgr: a folder, or YAML that is no resource of Kubernetes."""
    if path.is_dir():
        return True
    if path.suffix.lower() not in {".yaml", ".yml"} or not path.exists():
        return False
    try:
        keys = {key for document in read_yaml(path) for key in document.values}
    except SpecError:
        return True  # the tree's reader reports what is wrong, with its place
    return bool(keys & TREE_KEYS) and not keys & {"kind", "apiVersion"}


def completed(estate: Estate, known: Surroundings) -> Estate:
    """Fill in unknown facts from what the user knows; the user's Kafka version wins, so that an upgrade can be tried."""
    if known == Surroundings():
        return estate
    return replace(estate, subjects=tuple(_completed(subject, known) for subject in estate.subjects))


def _completed(subject: Subject, known: Surroundings) -> Subject:
    worker = _filled(subject.worker, known.worker)
    return replace(
        subject,
        worker=replace(worker, version=known.version or worker.version),
        source_kafka=_filled(subject.source_kafka, known.source),
        target_kafka=_filled(subject.target_kafka, known.target),
        wire=subject.wire or known.wire,
    )


def _filled(own: Facts, known: Facts) -> Facts:
    missing = [each.name for each in fields(own) if getattr(own, each.name) in (None, {})]
    return replace(own, **{name: getattr(known, name) for name in missing})


def joined(declared: Sequence[Estate], live: Sequence[Estate]) -> tuple[list[Estate], tuple[Subject, ...]]:
    """Return the estates, each connector once, and the connectors that run with another config than the declared one.

    A connector that is declared and runs counts as declared, with the real workers' facts; twice it would mirror twice.
    """
    running: dict[tuple[str, ...], list[Subject]] = {}
    for subject in (subject for estate in live for subject in estate.subjects):
        running.setdefault(_identity(subject), []).append(subject)
    twins = {subject: twin for estate in declared for subject in estate.subjects if (twin := _twin(subject, running))}
    informed = {
        subject: replace(subject, worker=_filled(twin.worker, subject.worker)) for subject, twin in twins.items()
    }
    gone = set(twins.values())
    estates = [replace(one, subjects=tuple(informed.get(each, each) for each in one.subjects)) for one in declared]
    estates += [replace(one, subjects=tuple(each for each in one.subjects if each not in gone)) for one in live]
    return estates, tuple(twin for subject, twin in twins.items() if dict(twin.config) != dict(subject.config))


def _identity(subject: Subject) -> tuple[str, ...]:
    return subject.name, subject.type, subject.source, subject.target


def _twin(subject: Subject, running: Mapping[tuple[str, ...], Sequence[Subject]]) -> Subject | None:
    """Return the running connector of a declared one; None where several Connect clusters run it and none is declared."""
    found = running.get(_identity(subject), ())
    here = [each for each in found if each.spot.connect == subject.connect] or found
    return here[0] if len(here) == 1 else None
