"""What is made of the edits of findings: new texts of files, or a JSON Patch. Writes no file.

New texts are kept only where the same is mirrored as before, or nothing was because of the fault itself (see
`mirroring`), and where lint then finds less and nothing worse.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from mm2mgr.errors import SpecError
from mm2mgr.formats import properties
from mm2mgr.formats.documents import of_yaml, parse
from mm2mgr.formats.properties import Entry, as_typed
from mm2mgr.formats.recognise import syntax_of
from mm2mgr.formats.templates import has_own_lines
from mm2mgr.formats.text_edits import Editable, NotEditable, PropertiesText, StructuredText, Value
from mm2mgr.lint.findings import SEVERITIES, Edit, Finding, Hit, Rule, Severity, line_key, phrase, spell
from mm2mgr.lint.mirroring import changes, difference, named_as
from mm2mgr.lint.rules import BY_ID, RULES, find
from mm2mgr.lint.subject import Estate, Subject
from mm2mgr.secrets import is_secret, lasting_parts, mask
from mm2mgr.spec.places import PathKey, read_yaml
from mm2mgr.truth.reach import CLUSTER_KEYS

FindingHit = tuple[Finding, Hit]
Contents = Mapping[str, bytes]
_SLIP = "unknown-key"  # to remove it would hide what was meant
_MOVED = "secret-in-clear"  # no fix writes a secret that was not there: under its right name it is only noticed
_CHANGES = "to be done by hand, as it changes what is mirrored: "
HINT = "a hint: applied with --fail-on info"


@dataclass(frozen=True)
class Healed:
    """Files with fixes: the new `contents` of those that change, what was `fixed`, and what is `left`, with reasons."""

    contents: Contents
    fixed: tuple[Finding, ...]
    left: tuple[tuple[Finding, str], ...]


def heal(
    contents: Contents,
    read: Callable[[Contents], Estate],
    rules: Sequence[Rule] = RULES,
    severities: Sequence[Severity] = SEVERITIES,
) -> Healed:
    """Apply the fixes of findings, most severe first, and lint after each round; `read` makes an estate of contents.

    A fix is given up if it changes what is mirrored, if its finding stays, if it brings a finding as severe, or if the
    files can no longer be read.
    """
    now, fixed, refused = dict(contents), list[Finding](), dict[object, str]()
    harmful: dict[object, Hit] = {}
    before = _Linted.find(read(now), rules)
    # A fix may bring up what another one was hidden behind.
    size, rounds = len(before.findings), 10 + 4 * len(before.findings)
    done = 0
    while rounds:
        decided = [fixable for fixable in _fixable(before.findings) if fixable[0].severity in severities]
        # What stood in the way may be fixed.
        if len(fixed) > done and all(_identity(fixable) in refused for fixable in decided):
            done = len(fixed)
            refused = {identity: reason for identity, reason in refused.items() if reason.startswith(_CHANGES)}
        if not (waiting := [fixable for fixable in decided if _identity(fixable) not in refused]):
            break
        rounds -= 1
        batch, taken = _Batch(now), list[FindingHit]()
        for fixable in waiting:
            reason = batch.refuse(harmful.get(_identity(fixable), fixable[1]))
            if not reason:
                taken.append(fixable)
            elif not taken:
                refused[_identity(fixable)] = reason
            if len(taken) == size:
                break  # lines move with each batch, so the others wait
        if not taken:
            continue
        after = _lint_again(batch.contents(), read, rules)
        changed_by = _mirroring_change(taken, before, after) if after else ""
        reason = (
            "with it the file cannot be read"
            if after is None
            else _lost_secret(now, batch.contents()) or changed_by or _worse(taken, before.findings, after.findings)
        )
        if after is not None and not reason:
            now, before, size = batch.contents(), after, 2 * size
            fixed += [_as_done(*fixable, harmful) for fixable in taken]
        elif (
            len(taken) == 1 and not changed_by and _identity(taken[0]) not in harmful and (gone := _removal(*taken[0]))
        ):
            harmful[_identity(taken[0])] = gone  # with this value no client should read it
        elif len(taken) == 1:
            refused[_identity(taken[0])] = reason
        else:
            size = len(taken) // 2
    changed = {file: data for file, data in now.items() if data != contents[file]}
    left = {
        (finding.rule, finding.spot, finding.message): (
            finding,
            HINT if hit.edits and finding.severity not in severities else refused.get(_identity((finding, hit)), ""),
        )
        for finding, hit in before.findings
    }
    return Healed(changed, tuple(fixed), tuple(left.values()))


def _as_done(finding: Finding, hit: Hit, harmful: Mapping[object, Hit]) -> Finding:
    """Return a finding with the fix as made: a harmful value's key was removed and written nowhere."""
    gone = harmful.get(_identity((finding, hit)))
    if gone is None or gone.subject is None:
        return finding
    return replace(
        finding, fix=f"{phrase(gone.subject, gone.edits)}; where a client reads it, its value does harm", hit=gone
    )


def _lost_secret(before: Contents, after: Contents) -> str:
    """Return why fixes that take a secret or a login out of a file are given up; "" if each is still somewhere."""
    changed = [file for file, data in after.items() if data != before[file]]
    old, new = ({file: _lasting(_values(file, contents[file])) for file in changed} for contents in (before, after))
    moved = {part: "" for file in changed for part in new[file].keys() - old[file].keys()}
    for file in changed:
        if key := _missing(old[file], new[file] | moved, as_typed(after[file].decode("iso-8859-1"))):
            return f"its fix would remove what {key} holds, perhaps the only copy of a login"
    return ""


_BETWEEN_WORDS = re.compile(r"[\s;=,\\\"'“”„‟‘’«»]+")


def _lasting(values: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {part: key for key, value in values for part in lasting_parts(key, value)}


def _missing(old: Mapping[str, str], new: Mapping[str, str], text: str) -> str:
    """Return the key of what `new` lacks, "" for nothing; words of a broken JAAS string may be elsewhere."""
    there = set(_BETWEEN_WORDS.split(text))
    for part, key in old.items():
        words = set(_BETWEEN_WORDS.split(part)) - {""}
        if part not in new and (words == {part} or not words <= there):
            return key
    return ""


def _values(file: str, data: bytes) -> Iterator[tuple[str, str]]:
    text = data.decode("iso-8859-1")
    syntax = syntax_of(file, text)
    if syntax == "properties":
        yield from ((entry.key, as_typed(entry.value)) for entry in properties.read(text, file))
        return
    if syntax in ("hcl", "script"):
        return
    waiting = (
        [parse(data.decode(), file)]
        if syntax == "json"
        else [of_yaml(document) for document in read_yaml(Path(file), data)]
    )
    while waiting:
        node = waiting.pop()
        waiting += [*(member for _, _, member in node.members), *node.items]
        if node.kind in ("text", "number"):
            yield next((name for name in reversed(node.path) if isinstance(name, str)), ""), node.text


@dataclass(frozen=True)
class _Linted:
    """The connectors of files, and what is found in them, most severe first."""

    estate: Estate
    findings: list[FindingHit]

    @classmethod
    def find(cls, estate: Estate, rules: Sequence[Rule]) -> _Linted:
        loud = [pair for pair in find(estate, rules) if pair[0].silenced is None]
        loud.sort(key=lambda pair: SEVERITIES.index(pair[0].severity))
        return cls(estate, loud)


def _lint_again(contents: Contents, read: Callable[[Contents], Estate], rules: Sequence[Rule]) -> _Linted | None:
    try:
        return _Linted.find(read(contents), rules)
    except SpecError:
        return None


def _mirroring_change(taken: Sequence[FindingHit], before: _Linted, after: _Linted) -> str:
    """Return what fixes change of what is mirrored, "" for nothing; connectors that a fault stopped may start."""
    differences = changes(before.estate, after.estate)
    if len(taken) == 1 and _asks_for_topics(*taken[0]):
        differences = tuple(difference for difference in differences if not difference.was_idle)
    if len(taken) == 1 and stops(*taken[0]):
        rule = taken[0][0].rule
        stopped = [difference for difference in before.findings if difference[0].rule == rule and stops(*difference)]
        connectors = {named_as(hit.subject)[:3] for _, hit in stopped if hit.subject}
        files = {hit.spot.file for _, hit in stopped if hit.spot and not hit.subject}
        begun = {difference.full_name[1] for difference in differences if difference.starts}
        if slip := next(
            (
                hit
                for difference, hit in after.findings
                if difference.rule == _SLIP and hit.subject and hit.subject.name in begun
            ),
            None,
        ):
            return f"to be done by hand: {min(begun)} would start, and {slip.message}"
        differences = tuple(
            difference
            for difference in differences
            if difference.full_name[:3] not in connectors and difference.full_name[0] not in files
        )
    return f"{_CHANGES}{differences[0].effect}" if differences else ""


def stops(finding: Finding, hit: Hit) -> bool:
    """Tell whether nothing is mirrored because of this fault itself."""
    return BY_ID[finding.rule].stops and finding.severity == "error" and not hit.mirrors


def _asks_for_topics(finding: Finding, hit: Hit) -> bool:
    """Tell whether it is an error in a list of topics: where the list takes none, its fix may begin to mirror."""
    return finding.severity == "error" and (hit.key or finding.spot.key).rpartition(".")[2] == "topics"


def _identity(pair: FindingHit) -> tuple[str, str, str, str]:
    finding, hit = pair
    return finding.rule, finding.spot.file, hit.subject.name if hit.subject else "", hit.key or finding.spot.key


def _worse(taken: Sequence[FindingHit], before: Sequence[FindingHit], after: Sequence[FindingHit]) -> str:
    """Return why fixes are given up, "" if they do what they say and bring nothing as severe."""
    there, still = Counter(map(_identity, before)), Counter(map(_identity, after))
    for identity, count in Counter(map(_identity, taken)).items():
        if still[identity] > there[identity] - count:
            return "its fix does not remove the finding"
    allowed = there.copy()
    least = max(SEVERITIES.index(finding.severity) for finding, _ in taken)
    for finding, hit in (pair for pair in after if pair[0].rule != _MOVED):
        allowed[_identity((finding, hit))] -= 1
        if allowed[_identity((finding, hit))] < 0 and SEVERITIES.index(finding.severity) <= least:
            return f"its fix would bring {finding.rule}: {finding.message}"
    return ""


def _fixable(every: Sequence[FindingHit]) -> list[FindingHit]:
    """Return what a machine can fix: a line of mm2.properties only when it can for all of its connectors."""
    open_ = {(finding.rule, finding.spot) for finding, hit in every if not hit.edits and finding.spot.key}
    return [pair for pair in every if pair[1].edits and (pair[0].rule, pair[0].spot) not in open_]


def _removal(finding: Finding, hit: Hit) -> Hit | None:
    """Reduce a fix that moves an unread key to its removal; None for other fixes, logins and slips."""
    if finding.rule == _SLIP or any(
        is_secret(edit.key) or edit.key.endswith(tuple(CLUSTER_KEYS)) for edit in hit.edits
    ):
        return None
    gone = tuple(edit for edit in hit.edits if edit.value is None and edit.key == hit.key)
    return replace(hit, edits=gone) if gone and len(gone) < len(hit.edits) else None


class _Batch:
    """Fixes that do not touch each other, on the texts of files."""

    def __init__(self, contents: Contents) -> None:
        self.before = contents
        self.sources: dict[str, Editable] = {}

    def contents(self) -> dict[str, bytes]:
        result = dict(self.before)
        for file, source in self.sources.items():
            result[file] = source.result().encode("iso-8859-1" if isinstance(source, PropertiesText) else "utf-8")
        return result

    def refuse(self, hit: Hit) -> str:
        """Make all edits of a hit, or none and return why."""
        before = self.sources
        self.sources = {file: source.copy() for file, source in before.items()}
        try:
            self._apply(hit)
        except NotEditable as error:
            self.sources = before
            return str(error)
        return ""

    def source(self, file: str) -> Editable:
        if file not in self.sources:
            if file not in self.before:
                raise NotEditable("it is not in a file that was given")
            data = self.before[file]
            if data.startswith(BOM_UTF8):
                raise NotEditable("the file begins with a byte order mark")
            text = data.decode("iso-8859-1")
            if has_own_lines(text):
                raise NotEditable("a template decides which of its lines there will be")
            syntax = syntax_of(file, text)
            if syntax in ("hcl", "script"):
                raise NotEditable("Terraform's files and scripts are changed by hand")
            structured = syntax != "properties"
            self.sources[file] = StructuredText(data.decode()) if structured else PropertiesText(text)
        return self.sources[file]

    def flat(self, file: str) -> Editable:
        """Return the text of a properties file; within YAML and JSON such text is left to people."""
        source = self.source(file)
        if isinstance(source, StructuredText):
            raise NotEditable("it is in a text within the file")
        return source

    def _apply(self, hit: Hit) -> None:
        edits = tuple(dict.fromkeys(hit.edits))
        removed = [edit for edit in edits if edit.value is None and not edit.at]
        for edit in edits:
            if edit.at:
                place = hit.spot or (hit.subject and hit.subject.spot)
                assert place
                self._line(place.file, edit, edit.at)
            elif hit.spot and not hit.subject and edit.value is not None:
                self.flat(hit.spot.file).set((edit.key,), edit.value)
            elif edit.value is not None:
                self._set(edit, edit.of or hit.subject, removed.pop(0) if removed else None)
        for edit in removed:
            file, path = self._there(edit.of or hit.subject, edit.key)
            self.source(file).remove(path)

    def _line(self, file: str, edit: Edit, entry: Entry) -> None:
        source = self.flat(file) if not entry.path else self.source(file)
        path: PathKey = entry.path or (entry.key, entry.line)
        if edit.comment and isinstance(source, PropertiesText):
            source.comment(entry.line, edit.comment)
        if edit.value is None:
            source.remove(path, entry.line)
        elif edit.key == entry.key:
            source.set(path, edit.value)
        else:
            source.set((*path[: len(entry.path) - 1], edit.key) if entry.path else (edit.key,), edit.value, path)

    def _set(self, edit: Edit, subject: Subject | None, old: Edit | None) -> None:
        assert subject
        assert edit.value is not None
        file, path, value = self._place(subject, edit.key, edit.value)
        gone: PathKey = ()
        if old:
            other, gone = self._there(old.of or subject, old.key)
            if other != file:
                self.source(other).remove(gone)
                gone = ()
        self.source(file).set(path, value, gone)

    def _there(self, subject: Subject | None, key: str) -> tuple[str, PathKey]:
        assert subject
        return self._place(subject, key, "")[:2]

    def _place(self, subject: Subject, key: str, value: str) -> tuple[str, PathKey, Value]:
        file = subject.spot.file
        if subject.form == "dedicated" or (subject.form == "connect" and not subject.home):
            self.flat(file)
        if subject.form == "dedicated":
            return subject.spot_of(key).file, (line_key(subject, key),), value
        if subject.form == "tree":
            return self._in_tree(subject, key, value)
        if not subject.home:
            return file, (key,), value
        if not (path := subject.paths.get(key, (*subject.home, key))):
            raise NotEditable("other parts of the file name it, or the operator makes it of them")
        return file, path, int(value) if path[-1] == "tasksMax" and value.isdecimal() else value

    def _in_tree(self, subject: Subject, key: str, value: str) -> tuple[str, PathKey, Value]:
        path, new = _flatten(spell(subject, key, value))
        spot = subject.spots.get(key)
        # `offset_syncs: false` is short for {enabled: false}.
        for suffix in (path, path[:-1]) if spot and spot.file else ():
            if spot and suffix and (there := self._ending(spot.file, suffix, spot.line)):
                return spot.file, (*there, *path[len(suffix) :]) if value else there, new
        whole = (
            path
            if path[0] in ("clusters", "connect")
            else ("flows", subject.connector.flows[0].partition(":")[0], *path)
        )
        for file in self.before:
            source = self.source(file)
            if isinstance(source, StructuredText) and (number := source.document(whole[:2])) is not None:
                return file, (number, *whole), new
        raise NotEditable(f"{'.'.join(map(str, whole[:2]))} is in none of the files")

    def _ending(self, file: str, path: PathKey, line: int) -> PathKey:
        source = self.source(file)
        return source.ending(path, line) if isinstance(source, StructuredText) else ()


def _flatten(text: str) -> tuple[PathKey, Any]:
    """Return the path and the value of `block: {key: value}`."""
    if "…" in text:
        raise NotEditable("a person decides about its parts")
    try:
        [document] = read_yaml(Path("fix"), text.encode())
    except SpecError as error:
        raise NotEditable("it is a line of a template") from error
    path, value = list[str](), cast("object", document.values)
    while isinstance(value, Mapping) and len(value) == 1:
        [(name, value)] = value.items()
        path.append(name)
    return tuple(path), value


# --- as JSON Patch, for tools that keep configs themselves ------------------------------------------------------------


def patch(finding: Finding, hit: Hit) -> list[dict[str, str]]:
    """Return a fix as JSON Patch (RFC 6902) of the connector's config, or of the lines of an mm2.properties.

    [] where a fix is none, changes another connector too, would show or lose a secret, or changes what is mirrored,
    unless nothing was because of its fault.
    """
    if not stops(finding, hit) and _changes_mirroring(finding, hit):
        return []
    config = {**hit.subject.config} if hit.subject else {}
    config |= {edit.at.key: edit.at.value for edit in hit.edits if edit.at}
    if any(edit.of and edit.of is not hit.subject for edit in hit.edits):
        return []
    gone = [key for key in map(_removed_key, hit.edits) if key in config]
    new = {key: value for key, value in config.items() if key not in gone}
    new |= {edit.key: edit.value for edit in hit.edits if edit.value is not None}
    if _missing(_lasting(config.items()), _lasting(new.items()), "\n".join(new.values())):
        return []
    operations: list[dict[str, str]] = []
    for edit in hit.edits:
        if edit.value is None:
            continue
        same = next((key for key in gone if config[key] == edit.value), None)
        if same is not None and edit.key not in config:
            gone.remove(same)
            operations.append({"op": "move", "from": _pointer(same), "path": _pointer(edit.key)})
        elif mask(edit.key, edit.value) != edit.value:
            return []
        else:
            operations += _test(edit.key, config)
            op = "replace" if edit.key in config else "add"
            operations.append({"op": op, "path": _pointer(edit.key), "value": edit.value})
    for key in gone:
        operations += [*_test(key, config), {"op": "remove", "path": _pointer(key)}]
    return operations


# Of a line in a file, whose connectors are not at hand: the keys that decide what is mirrored.
_DECISIVE = re.compile(
    r"(^|\.)(topics?|groups?|enabled|name|clusters|transforms|predicates|replication\.policy|(source|target)\.cluster"
    r"|isolation|bootstrap"
    r"|security|ssl|sasl|auto\.offset|group\.id|offset-syncs|emit|sync\.group|offsets?\.storage|topic\.filter"
    r"|group\.filter|heartbeats)\b"
)


def _changes_mirroring(finding: Finding, hit: Hit) -> bool:
    """Tell whether a fix changes what is mirrored, as far as its hit tells."""
    subject = hit.subject
    if subject is None:
        return any(
            _DECISIVE.search(key) for edit in hit.edits for key in (edit.key, edit.at.key if edit.at else edit.key)
        )
    edits = [edit for edit in hit.edits if not edit.at]
    config = {**subject.config, **{edit.key: edit.value for edit in edits if edit.value is not None}}
    gone = {edit.key for edit in edits if edit.value is None}
    after = subject.with_config({key: value for key, value in config.items() if key not in gone})
    change = difference(subject, after)
    return change is not None and not (change.was_idle and _asks_for_topics(finding, hit))


def _removed_key(edit: Edit) -> str | None:
    if edit.at and (edit.value is None or edit.at.key != edit.key):
        return edit.at.key
    return edit.key if edit.value is None else None


def _test(key: str, config: Mapping[str, str]) -> list[dict[str, str]]:
    value = config.get(key)
    if value is None or mask(key, value) != value:
        return []
    return [{"op": "test", "path": _pointer(key), "value": value}]


def _pointer(key: str) -> str:
    return "/" + key.replace("~", "~0").replace("/", "~1")
