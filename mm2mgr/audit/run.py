"""Runs an audit: pass 1 sums up blocks of both logs, pass 2 reads the blocks that differ record by record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mm2mgr.audit.report import AuditReport
from mm2mgr.audit.windows import AuditOrder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class AuditProgress:
    """How far an audit is: records read of those in the windows of both logs, and what it does now."""

    doing: str
    records: int = 0
    of_records: int = 0


ReportProgress = Callable[[AuditProgress], None]


def run_audit(
    order: AuditOrder, spark: SparkSession | None = None, progress: ReportProgress | None = None
) -> AuditReport:
    """Compare the windows on Spark, or in this process without a session; the answer is the same.

    What cannot be read is not judged, with the reason; Mm2mgrError only where the engine itself fails.
    """
    raise NotImplementedError
