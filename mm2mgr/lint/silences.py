"""Silences: rules disabled for one place by comments in files or keys of a connector's config, and which of them covers a finding."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from mm2mgr.formats.properties import BLANKS, LINE_END, as_typed
from mm2mgr.lint.findings import Finding
from mm2mgr.lint.subject import Estate, Silence, Spot, Subject

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


def silences_in(config: Mapping[str, str], spots: Mapping[str, Spot], place: Spot) -> tuple[Silence, ...]:
    """Return the silences of a connector's config: `mm2mgr.silence.RULE` = reason (JSON has no comments)."""
    return tuple(
        Silence(key.removeprefix(SILENCE_KEY), value.strip(), spots.get(key, place.at(key)))
        for key, value in config.items()
        if key.startswith(SILENCE_KEY)
    )


def silence(finding: Finding, subjects: Iterable[Subject], estate: Estate) -> Finding:
    """Return the finding with the reason of the first silence that covers it; any connector involved may have one."""
    for each in _silences(finding, subjects, estate):
        if each.rule == finding.rule and each.reason:  # one without a reason switches nothing off
            return replace(finding, silenced=each.reason)
    return finding


def _silences(finding: Finding, subjects: Iterable[Subject], estate: Estate) -> Iterator[Silence]:
    """Yield the silences that apply: those of a connector cover all of it, those in a comment its line and the next one."""
    for subject in subjects:
        yield from subject.silences
    for file in estate.files:
        if file.path == finding.spot.file:
            yield from (each for each in file.silences if finding.spot.line - each.spot.line in (0, 1))
