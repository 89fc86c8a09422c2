"""Traffic on the pages: what flows and pairs move now, beside yesterday and last week at this hour."""

from __future__ import annotations

from mm2mgr.operations.serve import EstateView
from mm2mgr.serve.pages.base import Context


def traffic(view: EstateView) -> Context | None:
    """Return the traffic section of the overview; None before the first look."""
    return None
