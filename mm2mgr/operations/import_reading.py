"""Reads what `import` takes: files, folders and Connect clusters that run, all as files of connectors."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from mm2mgr.errors import InvalidArgument, Mm2mgrError, SpecError
from mm2mgr.formats.connectors import FoundConnector
from mm2mgr.formats.recognise import ForeignFile
from mm2mgr.formats.sources import Sources, read_sources
from mm2mgr.imports.inputs import alias_text
from mm2mgr.truth.keys import kafka_version, load

Source = Path | str
"""A file or a folder, or as text the REST URL of a Connect cluster."""


@dataclass(frozen=True)
class ImportInputs:
    """What was read; `urls` are the REST URLs of the Connect clusters that were asked, by the name they get.

    `login` are the environment variables whose user and password they were given.
    """

    files: tuple[ForeignFile, ...]
    notes: tuple[str, ...] = ()
    urls: Mapping[str, Sequence[str]] = field(default_factory=dict)
    login: tuple[str, str] | None = None

    @property
    def connectors(self) -> list[FoundConnector]:
        """All connectors, those of other plugins too."""
        return [connector for file in self.files for connector in file.connectors]


def read_import_sources(
    sources: Sequence[Source], names: Mapping[str, Sequence[str]], topics: str = ""
) -> ImportInputs:
    """Read files and folders, and all that the Connect clusters at URLs run, whoever owns it; nothing is written.

    `names` are URLs by the name that their Connect cluster is to have, else it has that of its host. SpecError for what
    cannot be read of files, Mm2mgrError for a Connect cluster that does not answer, and where no connector is one of
    MirrorMaker.
    """
    read = _read(sources, names, topics)
    if not any(connector.type for connector in read.connectors):
        listed = ", ".join(map(str, sources))
        drivers = [f"mm2mgr lint {file.path} says why no pair of it is mirrored" for file in read.files
                   if file.syntax == "dedicated"]  # fmt: skip
        hint = "; ".join([*read.notes, *drivers][:3]) or None
        raise Mm2mgrError(f"{listed}: no connector of MirrorMaker in it", hint=hint)
    return read


def known_version(text: str) -> str:
    """Return the Kafka version that an option stands for; InvalidArgument for one that is not known."""
    version = kafka_version(text)
    if not version or not load().knows(version):
        raise InvalidArgument("kafka", f"{text} is no Kafka version that is known, such as 3.9")
    return version


def _read(sources: Sequence[Source], names: Mapping[str, Sequence[str]], topics: str) -> ImportInputs:
    urls = [str(source) for source in sources if is_url(source)]
    paths = [Path(source) for source in sources if not is_url(source)]
    files: tuple[ForeignFile, ...] = ()
    notes: tuple[str, ...] = ()
    if paths:
        read = _read_files(paths, topics)
        files = tuple(replace(file, within=()) for file in read.files)  # which are among them
        notes = tuple(map(str, read.notes))
    if not urls:
        return ImportInputs(files, notes)
    from mm2mgr.operations.lint import PASSWORD, USER

    running, of_names = _read_running(urls, names)
    login = (USER, PASSWORD) if os.environ.get(USER) else None
    return ImportInputs((*files, *running), notes, of_names, login)


def is_url(source: Source) -> bool:
    """Tell whether a source is the URL of a Connect cluster; a path is none, whatever its name."""
    return isinstance(source, str) and "://" in source


def _read_files(paths: Sequence[Path], topics: str) -> Sources:
    try:
        return read_sources(paths, topics=topics)
    except SpecError as error:
        raise SpecError(error.problems, hint=error.hint or "nothing was written") from error


def _read_running(
    urls: Sequence[str], names: Mapping[str, Sequence[str]]
) -> tuple[tuple[ForeignFile, ...], dict[str, list[str]]]:
    from mm2mgr.operations.lint import running_connectors
    from mm2mgr.operations.workspace import Workspace

    answers, unread = running_connectors(Workspace(), urls)
    if unread:
        raise next(iter(unread.values()))
    of_names: dict[str, list[str]] = {}
    files: list[ForeignFile] = []
    contents: list[tuple[str, object]] = []
    for url, connectors in answers.items():
        content = [(connector.name, connector.config, connector.workers) for connector in connectors]
        if same := next((name for name, other in contents if connectors and other == content), ""):
            of_names[same].append(url)  # another worker of the same Connect cluster
            continue
        name = _name_of(url, names, of_names)
        of_names[name] = [url]
        contents.append((name, content))
        files += [_file_of(name, connector) for connector in connectors]
    return tuple(files), of_names


def _name_of(url: str, names: Mapping[str, Sequence[str]], taken: Mapping[str, object]) -> str:
    if label := next((name for name, of_name in names.items() if url in of_name), ""):
        return label
    parts = urlsplit(url)
    host = alias_text(parts.hostname or "connect")
    several = (host, alias_text(f"{host}-{parts.port}"), *(f"{host}-{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in several if name not in taken)


def _file_of(connect: str, connector: FoundConnector) -> ForeignFile:
    """Return a connector that runs as a file of its own: CONNECT/NAME is where its keys are."""
    place = f"{connect}/{connector.name}"
    return ForeignFile(place, "properties", "", (replace(connector, owner=connect, file=place),))
