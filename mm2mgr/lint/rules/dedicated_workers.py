"""Rules about the workers of a dedicated MirrorMaker: pairs whose workers share a group or a storage topic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from mm2mgr.formats.mm2_properties import Dedicated, Line
from mm2mgr.lint.findings import Hit, estate_rule
from mm2mgr.lint.hops import point, same
from mm2mgr.lint.subject import Estate, SourceFile, Spot, Subject, addresses
from mm2mgr.truth.driver import to_worker

_EFFECTS = {
    "group.id": (
        "their workers form one group: one pair is mirrored, and the other's workers read on and on for configs that "
        "are in another topic"
    ),
    "config.storage.topic": (
        "both have connectors of the same names, so one pair is mirrored by the workers of both, the other by none"
    ),
    "offset.storage.topic": "both store offsets under the same connector names",
    "status.storage.topic": "each shows the states of the other's connectors",
}
_DECISIVE = ("group.id", "config.storage.topic")


@estate_rule("pairs-share-workers", "error", source="MirrorMakerConfig.workerConfig, MirrorMaker.configureConnectors")
def pairs_share_workers(estate: Estate) -> Iterator[Hit]:
    """Pairs with one target have workers with one group.id or one storage topic.

    The driver starts Connect workers of their own for each pair, on the target. By default their group and their three
    storage topics are named after the source (mm2-configs.A.internal). `B.config.storage.topic`, or the same line at
    the top level, gives all pairs that write to B one topic; the connectors have the same names in every pair, so the
    config that is written last counts for all. With two sources of 100 records each, 200 of one arrived and none of the
    other, and both were RUNNING. With one `group.id` all of one pair arrived and none of the other, whose workers
    logged 7 000 rounds in a minute without end. A pair that is not enabled counts as well where it sends heartbeats,
    which is the default: its idle source connector has that name too. Two files whose sources have one alias and one
    target share them by default. A shared topic for offsets or states alone is a warning. Remove the lines, or run one
    process per source.
    """
    workers: dict[tuple[str, str], Subject] = {}
    for subject in estate.subjects:
        if subject.form == "dedicated" and subject.spot.file:
            workers.setdefault(
                (subject.spot.file, subject.pair), subject
            )  # of a pair that mirrors its source connector
    users: dict[tuple[str, str, str], list[Subject]] = defaultdict(list)
    for subject in workers.values():
        for key in _EFFECTS:
            for address in addresses(subject.worker_property("bootstrap.servers") or ""):
                users[key, subject.worker_property(key) or "", address].append(subject)
    lines = WorkerLines(estate.files)
    reported: set[Spot] = set()
    for (key, value, _), subjects in users.items():
        mirroring = [subject for subject in subjects if subject.type == "source"]
        for subject in subjects if mirroring else ():
            others = [other for other in subjects if _is_apart(subject, other)]
            other = next((candidate for candidate in others if candidate.type == "source"), next(iter(others), subject))
            spot, line = lines.line_of(subject, key)
            place = spot if line else subject.spot  # by default all four are shared, which is one finding
            if other is subject or "source" not in (subject.type, other.type) or place in reported:
                continue
            reported.add(place)
            message = f"{subject.pair} and {other.pair} share {key}={value} on {subject.target}: {_EFFECTS[key]}"
            severe = any(
                subject.worker_property(candidate) == other.worker_property(candidate) for candidate in _DECISIVE
            )
            yield Hit(
                message, _fix(subject, key, line), key, subject, spot, (other,), severity=None if severe else "warning"
            )


class WorkerLines:
    """The lines that set properties of workers."""

    def __init__(self, files: tuple[SourceFile, ...]) -> None:
        self._files = {file.path: file for file in files if file.kind == "dedicated"}
        self._lines: dict[str, Mapping[str, Line]] = {}

    def line_of(self, subject: Subject, key: str) -> tuple[Spot, Line | None]:
        """Return the place of a property of a pair's workers, and its line, None where the driver's default applies."""
        own = f"{subject.pair.rpartition('->')[2]}.{key}"
        file = self._files.get(subject.spot.file)
        if file is None:
            return subject.spot.at(own), None
        if file.path not in self._lines:
            self._lines[file.path] = Dedicated(file.entries).lines
        lines = self._lines[file.path]
        line = (lines.get(key) if to_worker(key) else None) or lines.get(own)
        return (file.spot(line) if line else subject.spot.at(own)), line


def _is_apart(subject: Subject, other: Subject) -> bool:
    """Tell whether two pairs are not nodes of one MirrorMaker: other pairs of a file, or sources elsewhere."""
    if subject.spot.file == other.spot.file:
        return subject.pair != other.pair
    sources = point(subject, "source"), point(other, "source")
    return all(source.addresses for source in sources) and not same(*sources)


def _fix(subject: Subject, key: str, line: Line | None) -> str:
    if line is None:
        target = subject.pair.rpartition("->")[2]
        names = ", ".join(f"{target}.{name}" for name in _EFFECTS)
        return f"give one of the two sources another alias in its file, or write {names} of its own there"
    price = "; offsets stay in the old topic, so all is mirrored again" if key == "offset.storage.topic" else ""
    return f"remove {line.key}: by default each source has its own{price}"
