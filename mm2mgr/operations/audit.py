"""`audit`: whether every record of a flow's source topics is in its mirrored topics, once, unaltered and in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.audit.report import AuditReport
    from mm2mgr.audit.run import AuditProgress


@dataclass(frozen=True)
class AuditOptions:
    """What of flows is compared, and how.

    `topics` are names on the source; none: all that the flow mirrors. `since_ms`, `until_ms` are timestamps of
    records, milliseconds since 1970. `sample` is a share of the records between 0 and 1, read as whole windows chosen
    at random by `seed` (None: a new one; the report says which). `spark`: None lets the choice of engine decide.
    `counts`: no record is read, only offsets and their counts are compared. `most_differences` bounds what is told one
    by one of each partition.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    sample: float | None = None
    seed: int | None = None
    show_values: bool = False
    spark: bool | None = None
    counts: bool = False
    most_differences: int = 1_000


def audit(
    workspace: Workspace,
    names: tuple[str, ...] = (),
    options: AuditOptions = AuditOptions(),
    progress: Callable[[AuditProgress], None] | None = None,
) -> AuditReport:
    """Compare the records of flows, or of topics, with their mirrors; all flows for no names.

    A name is a flow (id, pair or declared name) or a topic on a source. Only records before the flow's stored offset
    are compared: what is on its way is no fault. What cannot be read is not judged, with the reason, and no failed
    cluster raises; Mm2mgrError for a name that the tree does not have.
    """
    raise NotImplementedError


def audit_compare(
    workspace: Workspace,
    first: str,
    second: str,
    options: AuditOptions = AuditOptions(),
    progress: Callable[[AuditProgress], None] | None = None,
) -> AuditReport:
    """Compare the mirrors of two flows over the same windows of one source: three flows in the report, each against
    the source, then `FIRST beside SECOND` with the differences that only one of them has.

    Mm2mgrError where the flows have not the same source.
    """
    raise NotImplementedError
