"""Files as people write them, imported and checked: each client gets what it got, or the import's report names what differs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from mm2mgr.imports.equivalence import SettingDifference
from mm2mgr.operations import ImportCheck, ImportedFolder, ImportOptions, Workspace, check_import, import_sources
from tests.examples import sampled

CORPUS = Path(__file__).parents[1] / "lint" / "corpus" / "valid"
SHORT_FORMS = ("@source", "@checkpoint", "@heartbeat", "@bytes")


def cases(theme: str) -> dict[str, Mapping[str, Any]]:
    documents = yaml.load_all((CORPUS / f"{theme}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    return {
        f"{theme}-{case['case']}": case
        for case in documents
        if case
        and not any(form in text for text in case.get("files", {"": "@source"}).values() for form in SHORT_FORMS)
    }


CASES = {name: case for theme in ("dedicated", "strimzi", "connectors") for name, case in cases(theme).items()}
# One Connect cluster is exactly-once or not: the heartbeats that a dedicated MirrorMaker's other workers wrote become transactional.
del CASES["dedicated-guide-exactly-once"]
SAMPLE = ["dedicated-kafkas-own-file", "dedicated-kafkas-own-file-three-copies", *list(cases("strimzi"))[:2]]


def is_told(row: SettingDifference, imported: ImportedFolder) -> bool:
    """Tell whether the report has a line for a difference, or the connector is one that it leaves out."""
    told = [line for line in imported.report.rows if line.outcome in ("lost", "different")]
    return (not row.key and bool(imported.report.left_out)) or any(line.key.endswith(row.key) for line in told)


@sampled("name", SAMPLE, CASES)
def test_what_an_import_changes_is_in_its_report(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    sources = []
    for file, text in case["files"].items():
        (tmp_path / "in" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / file).write_text(text, encoding="utf-8")
        sources.append(tmp_path / "in" / file)
    version = str(case.get("version") or "4.3.1")
    imported = import_sources(sources, ImportOptions(owner="team", version=version), tmp_path / "out")
    result = check_import(Workspace((tmp_path / "out",)), sources, ImportCheck(version))
    assert result.connectors > 0 or imported.report.left_out
    assert [row for row in result.differences if not is_told(row, imported)] == []
    assert not result.open
