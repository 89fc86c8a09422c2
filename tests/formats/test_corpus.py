"""Files of every form that lint and import read, rebuilt from public ones: connectors, keys with their lines, and findings.

A case is one document of a YAML file in `corpus/`: its files, which of them are named (`name`, all by default), and where the form was
seen. What is read is recorded in `corpus/recorded.json` (UPDATE_RECORDED=1 renews it); the lines are held by what stands in them.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from mm2mgr.errors import SpecError
from mm2mgr.formats.connectors import FoundConnector
from mm2mgr.formats.sources import Sources, read_sources
from mm2mgr.lint.reading import read_files
from mm2mgr.lint.rules import RULES, lint
from mm2mgr.secrets import mask

HERE = Path(__file__).parent / "corpus"
RECORDED = HERE / "recorded.json"
SECRET = "s3cr3t"
TYPED = {"name", "connector.class", "tasks.max"}
"""Keys that resources write under names of their own."""


@dataclass(frozen=True)
class Case:
    theme: str
    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.theme}-{self.data['case']}"

    def write(self, folder: Path) -> list[Path]:
        """Write the files, and return the paths that a user names, relative to the folder."""
        for name, text in self.data["files"].items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(text.encode())
        return [Path(name) for name in self.data.get("name", self.data["files"])]

    def read(self, folder: Path) -> Sources:
        return read_sources(self.write(folder), topics=self.data.get("topics", ""))


CASES = [
    Case(file.stem, data)
    for file in sorted(HERE.glob("*.yaml"))
    for data in yaml.load_all(file.read_text(encoding="utf-8"), yaml.CSafeLoader)
    if data
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def described(connectors: Iterable[FoundConnector]) -> Iterator[str]:
    """Yield a line for each connector of a file and for each of its settings; of a connector with the cluster pair of
    the one before only the settings that differ."""
    pair, before = None, dict[str, str]()
    for connector in connectors:
        workers = connector.workers
        about = {
            "type": connector.type or connector.class_name,
            "form": connector.form,
            "owner": connector.owner,
            "state": connector.state,
            "group": connector.start_group,
            "sensitive": ",".join(sorted(connector.sensitive)),
            "kafka": workers and workers.version,
            "policy": workers and workers.policy,
            "exactly_once": "yes" if workers and workers.exactly_once else "",
        }
        yield " ".join([connector.name, *(f"{name}={value}" for name, value in about.items() if value)])
        settings = dict(_settings(connector))
        aliases = tuple(connector.config.get(f"{side}.cluster.alias") for side in ("source", "target"))
        if aliases != pair:
            pair, before = aliases, {}
        yield from (line for key, line in settings.items() if before.get(key) != line)
        yield from (f"without {key}" for key in before if key not in settings)
        before = settings


def _settings(connector: FoundConnector) -> Iterator[tuple[str, str]]:
    for key, value in connector.config.items():
        file, line = connector.place_of(key)
        place = f"{file}:{line}" if key in connector.lines else "-"
        copied = connector.form == "dedicated" and key.endswith(".bootstrap.servers") and ".cluster." not in key
        if not copied:  # of what the driver copies the cluster's own is enough
            yield key, f"{place} {key} = {mask(key, value)}"


def findings(paths: Sequence[Path]) -> list[str]:
    """Return rule and place of every finding but hints; the reason, where lint reads nothing."""
    try:
        estate = read_files(paths)
    except SpecError as error:
        return [f"refused: {error.message}"]
    return sorted({f"{found.rule} {found.spot}" for found in lint(estate, RULES) if found.severity != "info"})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_form_is_read_as_recorded(case: Case, folder: Path) -> None:
    sources = case.read(folder)
    read = {
        "connectors": [line for file in sources.files for line in described(file.connectors)],
        "notes": list(map(str, sources.notes)),
        "findings": findings([Path(name) for name in case.data.get("name", case.data["files"])]),
    }
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    if os.environ.get("UPDATE_RECORDED"):
        recorded[case.name] = read
        names = {case.name for case in CASES}
        kept = {name: recorded[name] for name in sorted(recorded) if name in names}
        RECORDED.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    assert read == recorded[case.name]
    assert SECRET not in json.dumps(read)
    assert any(found.type for file in sources.files for found in file.connectors)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_line_has_its_key_or_its_value(case: Case, folder: Path) -> None:
    seen = 0
    for connector in case.read(folder).connectors:
        for key, entry in connector.lines.items():
            file, line = connector.place_of(key)
            if not line:
                continue  # an option of the command has no line
            text = Path(file).read_text(encoding="utf-8-sig").splitlines()[line - 1]
            signs = [entry.key, key, entry.value.partition(",")[0], *key.split(".")[-1:]]
            is_typed = key in TYPED or connector.form == "mirrormaker1" or ".cluster." in key
            is_typed = is_typed or "aiven" in case.name or "yandex" in case.name or "base64" in case.name
            assert any(sign and sign in text for sign in signs[:2]) or is_typed, (key, file, line, text)
            if is_typed and "base64" not in case.name and "for-each" not in case.name:
                words = [
                    *signs,
                    key.replace(".", "_"),
                    "topics",
                    "whitelist",
                    "include",
                    "alias",
                    "replication",
                    "sasl",
                ]
                words += [
                    "service",
                    "sync",
                    "offset",
                    "resource",
                    "metadata",
                    "refresh",
                    "emit",
                    "kafka_mirrormaker",
                    "exclude",
                ]
                words += ["command", "target", "source"]
                assert any(sign and sign in text for sign in words) or key == "name", (key, file, line, text)
            seen += 1
    assert seen


# --- what is broken ---------------------------------------------------------------------------------------------------


def mutations(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """Yield a text cut short, with a byte changed, a line gone, a line twice, and signs of its syntax put in."""
    at = chance.randrange(len(data))
    yield data[:at]
    yield data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
    lines = data.split(b"\n")
    number = chance.randrange(len(lines))
    yield b"\n".join(lines[:number] + lines[number + 1 :])
    yield b"\n".join(lines[: number + 1] + lines[number:])
    sign = chance.choice(
        [
            b'"',
            b"{",
            b"}",
            b"[",
            b"${",
            b"<<EOT\n",
            b"\\",
            b": ",
            b"\t",
            b"'",
            b"{{",
            b"#",
            b"/*",
            b"&a *a",
            b"=",
            b"%{",
        ]
    )
    yield data[:at] + sign + data[at:]


def answered(paths: Sequence[Path]) -> str:
    """Return what is read, or the message of a refusal; any other exception is a crash."""
    try:
        return repr(read_sources(paths, topics="parcels"))
    except SpecError as error:
        return error.message


def mutate(case: Case, folder: Path, times: int, seed: int) -> None:
    chance = random.Random(f"{case.name} {seed}")
    paths = case.write(folder)
    for _ in range(times):
        name, text = chance.choice(list(case.data["files"].items()))
        for data in mutations(text.encode(), chance):
            (folder / name).write_bytes(data)
            answer = answered(paths)
            assert SECRET not in answer
        (folder / name).write_bytes(text.encode())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_broken_file_is_read_or_refused(case: Case, folder: Path) -> None:
    mutate(case, folder, times=2, seed=1)


@pytest.mark.matrix
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_many_broken_files_are_read_or_refused(case: Case, folder: Path) -> None:
    started = time.process_time()
    for seed in range(20):
        mutate(case, folder, times=5, seed=seed)
    assert time.process_time() - started < 120
