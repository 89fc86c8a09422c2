"""Visits of a person to the pages of `serve`: since when something has changed for them. Pure; a cookie keeps it."""

from __future__ import annotations

import re
from dataclasses import dataclass

VISIT_SECONDS = 1800.0
"""A visit ends so long after its last request."""
FIRST_SECONDS = 86_400.0
"""What a first visit shows of the past."""
_COOKIE = re.compile(r"(\d{1,11})\.(\d{1,11})", re.ASCII)


@dataclass(frozen=True)
class Visit:
    """When the visit before this one ended (None: there was none), and the last request of this one, in seconds since
    1970. `cookie`: what keeps both; empty where nothing is to be kept."""

    since: float
    is_first: bool
    cookie: str = ""

    @classmethod
    def from_cookie(cls, cookie: str, now: float, *, is_live: bool = False) -> Visit:
        """Return the visit of a request with this cookie; a text that is none, or of the future, is as none. A request
        that a page makes by itself (`is_live`) begins no visit and makes none last."""
        match = _COOKIE.fullmatch(cookie)
        before, last = (int(match[1]), int(match[2])) if match else (0, 0)
        if not match or last > now + 1 or before > last:
            before, last = 0, 0
        if not is_live:
            before = last if last and now - last > VISIT_SECONDS else before
            last = int(now)
        since = float(before) if before else now - FIRST_SECONDS
        return cls(since, not before, "" if is_live else f"{before}.{last}")
