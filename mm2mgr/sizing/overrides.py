"""The file that people review: sizings as the `sizing` section of `clusters/overrides/`.

In go sizings and two texts, out comes a plain document; writing it is the caller's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mm2mgr.sizing.tasks import Sizing


def overrides_document(
    sizings: Iterable[Sizing], when_text: str, source_text: str, changed: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return {"sizing": {flow id: …}} in the order of flow ids.

    `when_text` is the measured time window, `source_text` what was measured (the statistic and the result it came from),
    `changed` when a flow's number last became another one.
    """
    since = changed or {}
    return {
        "sizing": {
            sizing.flow_id: {
                "tasks_max": sizing.tasks,
                "reason": " ".join(sizing.reasons),
                "bytes_per_second": round(sizing.bytes_per_second),
                "measured": when_text,
                "source": source_text,
                **({"changed": since[sizing.flow_id]} if sizing.flow_id in since else {}),
            }
            for sizing in sorted(sizings, key=lambda one: one.flow_id)
        }
    }
