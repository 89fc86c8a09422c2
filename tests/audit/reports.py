"""Reports of audits that were made by hand, for what shows and keeps them."""

from __future__ import annotations

from mm2mgr.audit.report import AuditReport, DifferenceKind, FlowAudit, PartitionAudit, RecordDifference
from mm2mgr.partitions import TopicPartition

BEGAN = 1_795_651_200.0  # 2026-11-26T00:00:00Z
FLOW = "orders:a->b"
TIME_MS = round(BEGAN * 1000) - 3_600_000
PROMISE = "every record of the window is on the target once, in order, with its key, value, timestamp and headers"


def part(number: int, **values: object) -> PartitionAudit:
    """Return a partition of 100 records that are equal, unless said otherwise."""
    settings: dict[str, object] = {
        "source": TopicPartition("orders", number),
        "target": TopicPartition("a.orders", number),
        "source_window": (1000, 1100),
        "target_window": (900, 1000),
        "source_records": 100,
        "target_records": 100,
        "source_topic_id": "id",
        "target_topic_id": "other",
    }
    return PartitionAudit(**{**settings, **values})  # type: ignore[arg-type]


def record(kind: DifferenceKind, source: int | None, target: int | None, **values: object) -> RecordDifference:
    settings: dict[str, object] = {"time_ms": TIME_MS, "key_hash": "00f1e2d3c4b5a697"}
    return RecordDifference(kind, source, target, **{**settings, **values})  # type: ignore[arg-type]


def report(*parts: PartitionAudit, flow: str = FLOW, **values: object) -> AuditReport:
    settings: dict[str, object] = {"promises": (PROMISE,)}
    return AuditReport((FlowAudit(flow, parts, **{**settings, **values}),), BEGAN, 4.2, "in this process")  # type: ignore[arg-type]


EQUAL = report(part(0), part(1))
MISSING = part(
    0,
    target_window=(900, 997),
    target_records=97,
    counts={DifferenceKind.MISSING: 3},
    differences=tuple(record(DifferenceKind.MISSING, offset, None) for offset in (1010, 1011, 1020)),
)
MIXED = part(
    1,
    counts={DifferenceKind.DUPLICATED: 1, DifferenceKind.ALTERED: 1, DifferenceKind.EXTRA: 40},
    expected={"transformation 'drop' drops records without a key": 2},
    differences=(
        record(DifferenceKind.DUPLICATED, 1050, 951, note="came twice, after the record of 12:03 UTC"),
        record(DifferenceKind.ALTERED, 1060, 962, fields=("value", "headers"), key_hash=None),
        record(DifferenceKind.EXTRA, None, 970),
        record(DifferenceKind.MISSING, 1070, None, expected="transformation 'drop' drops records without a key"),
    ),
)
EATEN = part(2, not_judged=("offsets 1000 to 1049 were deleted by retention: audit sooner after they arrive",))
DIFFERS = report(MISSING, MIXED, EATEN)
NOT_JUDGED = report(part(0), EATEN, not_judged=("topic old: it is not on the target",))
