"""Files as people write them, imported and checked: each client gets what it got, or the import's report names what differs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from mm2mgr.imports.equivalence import SettingDifference
from mm2mgr.imports.report import ImportReport
from mm2mgr.operations import ImportCheck, ImportOptions, Workspace, check_import, import_sources
from mm2mgr.truth.keys import kafka_version, load
from tests.examples import sampled
from tests.lint.test_corpus import TREE, expanded

TESTS = Path(__file__).parents[1]
CORPORA = ("lint/corpus/valid", "lint/corpus/faulty", "formats/corpus")


def cases() -> dict[str, Mapping[str, Any]]:
    """Return every case of both corpora that has files, by folder, theme and name; trees are no files of others."""
    documents = {
        f"{Path(folder).name}-{theme.stem}-{case['case']}": case
        for folder in CORPORA
        for theme in sorted((TESTS / folder).glob("*.yaml"))
        for case in yaml.load_all(theme.read_text(encoding="utf-8"), yaml.CSafeLoader)
        if case
    }
    return {
        name: case
        for name, case in documents.items()
        if case.get("files") and not any(TREE.search(text) for text in case["files"].values())
    }


CASES = cases()
SAMPLE = [
    *(
        "valid-dedicated-kafkas-own-file",
        "valid-dedicated-guide-exactly-once",
        "faulty-tricky-json-workers-in-dedicated",
    ),
    *("valid-public_third-strimzi-target-protocols", "faulty-estates-policy-disagrees"),
    *("faulty-public_third-old-active-active", "corpus-mirror_maker1-over-several-lines"),
    *("faulty-estates-checkpoints-without-syncs", "valid-no_alarm-reporters-with-jmx"),
]

KEPT = SAMPLE[2:4] + SAMPLE[-1:]
"""Cases in which each client gets all that it got."""


def is_told(difference: SettingDifference, report: ImportReport) -> bool:
    """Tell whether a report names a difference: by itself, at the key that decides it, or with its connector."""
    if not difference.key and difference.connector in {left.connector for left in report.left_out}:
        return True
    if any(shown(row) == shown(difference) for row in report.differences):
        return True
    here = [row for row in report.rows if (row.file, row.line) == (difference.file, difference.line)]
    named = [row for row in here if row.key.endswith(difference.written_as)]  # a command's options have other names
    return bool(difference.written_as) and any(row.needs_decision for row in named or here)


def shown(row: SettingDifference) -> tuple[str | None, ...]:
    return row.connector, row.client, row.key, row.shown_old, row.shown_new


@sampled("name", SAMPLE, CASES)
def test_what_an_import_changes_is_in_its_report(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    for file, text in case["files"].items():
        (tmp_path / "in" / file).parent.mkdir(parents=True, exist_ok=True)
        written = text if name.startswith("corpus-") else expanded(text, file.rpartition(".")[2])
        (tmp_path / "in" / file).write_bytes(written.encode())
    sources = [tmp_path / "in" / file for file in case.get("name", case["files"])]
    version, topics = str(case.get("version") or "") or None, case.get("topics", "")
    if version and not load().knows(kafka_version(version) or version):
        version = None
    imported = import_sources(sources, ImportOptions(owner="team", version=version), tmp_path / "out", topics=topics)
    result = check_import(
        Workspace((tmp_path / "out",)), sources, ImportCheck(version, topics=topics, assume_newest=True)
    )
    rows = (*result.differences, *result.open)
    assert result.connectors > 0 or imported.report.left_out
    assert [row for row in rows if not is_told(row, imported.report)] == []
    assert not (name in KEPT and (any(row.key for row in rows) or imported.report.differences))
