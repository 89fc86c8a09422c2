"""An audit as text, Markdown, JSON and a page: what a person reads of each verdict, and that no value slips out."""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.audit.report import AuditReport, DifferenceKind, Verdict
from mm2mgr.json_values import to_json
from mm2mgr.observe.audits import audit_rows
from mm2mgr.operations.audit import AuditHistory, AuditRound, repair_plan
from mm2mgr.output.audit_page import audit_page
from mm2mgr.output.audit_text import audit_markdown, groups_of, say_audit, say_audit_round, say_repair
from mm2mgr.output.console import log_lines
from mm2mgr.samples.schema import AuditRow
from tests.audit.reports import BEGAN, DIFFERS, EATEN, EQUAL, FLOW, MISSING, NOT_JUDGED, part, record, report
from tests.observe.estate import flow_of

Printed = Callable[[], list[str]]
GOLDEN = Path(__file__).parent / "golden"
SECRET = "hunter2secret"


def held_to(name: str, text: str) -> None:
    """Compare with a golden file; `UPDATE_SCREENS=1` writes it, for a person to read."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_SCREENS"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "audit"),
    [("equal", EQUAL), ("differs", DIFFERS), ("not_judged", NOT_JUDGED)],
    ids=lambda value: str(value)[:9],
)
def test_each_verdict_as_text_json_and_markdown(printed: Printed, name: str, audit: AuditReport) -> None:
    say_audit(audit)
    held_to(f"audit_{name}.txt", "\n".join(printed()) + "\n")
    held_to(f"audit_{name}.json", json.dumps(to_json(audit), indent=2) + "\n")
    held_to(f"audit_{name}.md", audit_markdown(audit))


def test_a_repair_plan_is_commands_and_what_comes_twice(printed: Printed) -> None:
    say_repair(repair_plan(DIFFERS))
    held_to("audit_repair.txt", "\n".join(printed()) + "\n")
    say_repair(repair_plan(EQUAL))
    assert printed()[-1] == "Repair plan: nothing is missing or altered, so there is nothing to replay."


def test_a_repair_goes_back_to_the_first_record_that_is_missing_or_altered() -> None:
    (missing, altered) = repair_plan(DIFFERS)
    assert (missing.offset, missing.arrives, missing.comes_twice, missing.at_most) == (1010, 3, 87, False)
    assert (altered.offset, altered.comes_again, altered.arrives, altered.comes_twice) == (1060, 1, 0, 39)
    gaps = report(replace(MISSING, source_records=60))
    assert [(replay.comes_twice, replay.at_most) for replay in repair_plan(gaps)] == [(57, True)]
    uncounted = report(replace(MISSING, differences=()))
    assert [(replay.offset, replay.at_most) for replay in repair_plan(uncounted)] == [(1000, True)]


def test_a_replay_brings_and_repeats_what_it_says() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        offsets = range(1000, 1000 + rng.randint(1, 60))
        bad = rng.sample(offsets, rng.randint(1, len(offsets)))
        missing, altered = set(bad[: len(bad) // 2]), set(bad[len(bad) // 2 :])
        differences = [record(DifferenceKind.MISSING, offset, None) for offset in missing]
        differences += [record(DifferenceKind.ALTERED, offset, offset, fields=("value",)) for offset in altered]
        window = part(
            0,
            source_window=(offsets.start, offsets.stop),
            source_records=len(offsets),
            counts={DifferenceKind.MISSING: len(missing), DifferenceKind.ALTERED: len(altered)},
            differences=tuple(rng.sample(differences, len(differences))),
        )
        (replay,) = repair_plan(report(window))
        target = Counter(offset for offset in offsets if offset not in missing)
        mirrored_again = [offset for offset in offsets if offset >= replay.offset]
        assert set(bad) <= set(mirrored_again), "nothing that is missing or altered stays so"
        assert replay.arrives == sum(not target[offset] for offset in mirrored_again)
        assert replay.comes_again == sum(offset in altered for offset in mirrored_again)
        assert replay.comes_twice == sum(target[offset] > 0 and offset not in altered for offset in mirrored_again)


def test_many_differences_are_limited_and_the_rest_is_counted(printed: Printed) -> None:
    apart = tuple(record(DifferenceKind.MISSING, 1000 + 2 * number, None) for number in range(50))
    parts = [part(number, counts={DifferenceKind.MISSING: 50}, differences=apart) for number in range(20)]
    say_audit(report(*parts))
    lines = printed()
    assert sum(line.startswith("    missing") for line in lines) == 40
    assert "  … and 960 more differences; -o json has them" in lines
    assert sum(len(group.differences) for group in groups_of(parts[0])) == 50


def test_neighbours_are_one_line_and_other_causes_are_not() -> None:
    gap = tuple(record(DifferenceKind.MISSING, offset, None) for offset in range(1000, 1050))
    assert [len(group.differences) for group in groups_of(part(0, differences=gap))] == [50]
    noted = (*gap[:2], replace(gap[2], note="after a restart"), *gap[3:5])
    assert [len(group.differences) for group in groups_of(part(0, differences=noted))] == [2, 1, 2]


def test_values_are_shown_only_where_they_were_asked_for_and_without_secrets(printed: Printed) -> None:
    value = f'{{"user": "jo", "password": "{SECRET}"}}'.encode()
    altered = record(DifferenceKind.ALTERED, 1001, 901, fields=("value",), source_value=value, target_value=b"\xff\x00")
    audit = report(part(0, counts={DifferenceKind.ALTERED: 1}, differences=(altered,)))
    say_audit(audit)
    text = "\n".join(printed())
    assert 'source: {"user": "jo"' in text
    assert "target: \\xff\\x00" in text
    for shown in (text, json.dumps(to_json(audit)), audit_markdown(audit), page(audit)):
        assert SECRET not in shown
    (shown,) = to_json(DIFFERS)["flows"][0]["partitions"][1]["differences"][:1]
    assert (shown["source_value"], shown["target_value"]) == (None, None)


@pytest.mark.parametrize("time_ms", [None, -1, 0, 2**60])
def test_a_record_of_any_timestamp_has_a_line(time_ms: int | None) -> None:
    differs = record(DifferenceKind.MISSING, 1000, None, time_ms=time_ms)
    assert groups_of(part(0, differences=(differs,)))[0].text.startswith("missing, source 1000")


def test_markdown_shows_names_and_obeys_none_of_them() -> None:
    nasty = "[x](javascript:alert(1)) | <script> `rm`"
    text = audit_markdown(report(part(0, not_judged=(nasty,)), flow=nasty))
    assert "<script" not in text
    assert "[x](" not in text.replace("\\[", "").replace("\\]", "")
    assert re.search(r"^\| .* \| not judged \|", text, re.MULTILINE), "a | in a name ends no cell"


# --- rounds -----------------------------------------------------------------------------------------------------------


def test_a_round_is_a_line_unless_there_is_something_to_read(printed: Printed) -> None:
    log = log_lines("result")
    say_audit_round(AuditRound(1, BEGAN, EQUAL), log, full=True)
    assert printed() == ["2026-11-26T00:00:00Z audit: Equal: 200 records of 2 partitions (4.2 s, in this process)."]
    say_audit_round(AuditRound(2, BEGAN, None, standby=(FLOW,)), log, full=True)
    assert printed() == ["2026-11-26T00:00:00Z audit: standby: another process audits orders:a->b"]
    say_audit_round(AuditRound(3, BEGAN, error="no broker answered"), log, full=True)
    assert printed() == ["2026-11-26T00:00:00Z audit: not judged: no broker answered"]
    say_audit_round(AuditRound(4, BEGAN, DIFFERS), log)
    assert len(printed()) == 1
    say_audit_round(AuditRound(4, BEGAN, DIFFERS), log, full=True)
    assert printed()[-1].startswith("Differs: 3 missing")
    assert AuditRound(3, BEGAN).verdict is Verdict.NOT_JUDGED


# --- the page ---------------------------------------------------------------------------------------------------------


def page(audit: AuditReport, rows: tuple[AuditRow, ...] = ()) -> str:
    return audit_page(audit, AuditHistory(rows), "Written now")


def test_the_page_has_verdict_timeline_and_a_picture_of_each_partition(tmp_path: Path) -> None:
    flow = replace(flow_of(tmp_path), name="orders")
    rows = [row for audit in (EQUAL, DIFFERS) for row in audit_rows(renamed(audit, flow.id), {flow.id: flow}, "serve")]
    earlier = [replace(row, time_ms=row.time_ms - 3 * 86_400_000) for row in rows if row.verdict == "equal"]
    text = page(DIFFERS, (*earlier, *rows))
    assert "Differs: 3 missing" in text
    assert text.count('<rect class="none"') == 28, "30 days of one flow, two with an audit"
    assert text.count('class="over" x=') == 1
    assert text.count('<svg class="window"') == 3
    assert text.count('<rect class="tick"') == 3 + 3
    assert "deleted by retention" in text
    assert "no audit" in text
    assert "<script" not in text
    assert "http://" not in text.replace("http://www.w3.org", "")


def test_names_on_the_page_stay_text() -> None:
    nasty = '"><script>alert(1)</script>&'
    text = page(report(replace(EATEN, not_judged=(nasty,)), flow=nasty, promises=(nasty,)))
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text


def renamed(audit: AuditReport, flow: str) -> AuditReport:
    return replace(audit, flows=tuple(replace(of, flow=flow) for of in audit.flows))
