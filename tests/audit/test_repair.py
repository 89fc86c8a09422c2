"""Where to go back to, so that missing and altered records come again, and what would come twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mm2mgr.audit.blocks import blocks_of
from mm2mgr.audit.repair import Repair, repair
from mm2mgr.audit.report import DifferenceKind, RecordDifference

from .logs import Log, Record, audit_logs

K = DifferenceKind
RECORDS = [Record(b"k", b"v%d" % row, 1_000 + row) for row in range(400)]
SOURCE = Log(tuple(RECORDS), tuple(range(0, 800, 2)))


def test_the_first_missing_or_altered_record_is_where_to_go_back_to():
    altered = replace(RECORDS[350], value=b"other")
    entries = [*RECORDS[:100], RECORDS[90], *RECORDS[101:300], *RECORDS[302:350], altered, *RECORDS[351:]]
    target = Log(tuple(entries), tuple(range(len(entries))))
    differences = audit_logs(SOURCE.columns(), target.columns(), 4)
    blocks = blocks_of(SOURCE.columns(), 0)
    assert repair(differences, blocks) == Repair(200, arrives=3, comes_again=1, comes_twice=296)
    assert repair(differences, blocks_of(SOURCE.columns(), 30)) == Repair(200, 3, 1, 396, at_most=True)


@pytest.mark.parametrize("kind", [K.DUPLICATED, K.REORDERED, K.EXTRA])
def test_what_mirroring_again_cannot_repair_needs_no_going_back(kind):
    blocks = blocks_of(SOURCE.columns(), 4)
    offset = None if kind is K.EXTRA else 4
    assert repair([RecordDifference(kind, offset, 4)], blocks) is None
    assert repair([RecordDifference(K.MISSING, 4, None, expected="dropped")], blocks) is None
    assert repair([], blocks) is None
