"""Samples from Cruise Control's REST API: the mean rates of each partition in each of its finished windows, once.

Each window of a span of time becomes a batch. Its 202 answers are followed to their end; a monitor
that is still warming up is a source that is down, and a partition it does not list is missing, not idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from mm2mgr import timing
from mm2mgr.samples.batch import Gathered, Inventory, Rows, TopicNames
from mm2mgr.samples.http import Http, HttpAnswer, SourceError, shorten
from mm2mgr.samples.readers import Opening
from mm2mgr.text import span_text

CRUISE_CONTROL = "cruise-control"
KIB = 1024.0
MIB = 1024.0 * 1024.0
_ASK_AGAIN_SECONDS = 1.0
_LONGEST_WINDOW_MS = 86_400_000
_TASK = "User-Task-ID"
_SHARED = "Cruise Control's rates are means over the partitions that a topic has on one broker"
_DIGITS = 16  # of a moment in milliseconds; Python refuses to read thousands of them
_WARMING_UP = "NotEnoughValidWindows"


def open_source(opening: Opening) -> CruiseControlSource:
    """Open the REST API that is declared."""
    return CruiseControlSource(opening.http())


@dataclass
class CruiseControlSource:
    """One cluster's Cruise Control; `deadline_seconds` bounds one question with all its 202 answers."""

    http: Http
    deadline_seconds: float = 300.0
    source_prefix: ClassVar[str] = CRUISE_CONTROL

    def close(self) -> None:
        """Close the session."""
        self.http.close()

    def gather(self, inventory: Inventory, since_ms: int | None, until_ms: int) -> Iterator[Gathered]:
        """Yield the windows that ended after `since_ms` (None: only the newest) until `until_ms`, oldest first.

        SourceError when it does not answer or has no finished window yet.
        """
        ends = [end for end in self._window_ends() if end <= until_ms]
        if len(ends) < 2:
            raise self._warming(f"{len(ends)} windows")
        window_ms = min(after - before for before, after in pairwise(ends))
        if window_ms > _LONGEST_WINDOW_MS:
            raise self.http.error(f"its windows end {window_ms / _LONGEST_WINDOW_MS:.0f} days apart: a clock is wrong")
        new_ends = ends[-1:] if since_ms is None else [end for end in ends if end - 1 > since_ms]
        for end in new_ends:
            yield self._window(inventory, end, window_ms)

    def _window_ends(self) -> list[int]:
        """Return when each finished window ended; Cruise Control names windows by their end."""
        body = self._ask("/state", {"substates": "monitor", "verbose": "true"})
        monitor = body.get("MonitorState")
        windows = monitor.get("monitoredWindows") if isinstance(monitor, dict) else None
        if not isinstance(windows, dict):
            raise self._warming("no windows")
        return sorted(int(end) for end in windows if end.isascii() and end.isdecimal() and len(end) < _DIGITS)

    def _window(self, inventory: Inventory, end_ms: int, window_ms: int) -> Gathered:
        # A window is chosen by any moment in it; its end already belongs to the next one.
        span = {"start": str(end_ms - window_ms), "end": str(end_ms - 1)}
        body = self._ask("/partition_load", {"resource": "NW_IN", "min_valid_partition_ratio": "0.0", **span})
        records = body.get("records")
        if not isinstance(records, list):
            raise self.http.error("the answer to partition_load has no records")
        rows, names = Rows(inventory, CRUISE_CONTROL, window_ms), TopicNames(inventory, keeps_dots=True)
        for record in records:
            _add(rows, names, record, end_ms - 1)
        return Gathered(rows.batches(), [*names.notes(), *rows.notes(), _SHARED])

    def _ask(self, path: str, parameters: Mapping[str, str]) -> dict[str, object]:
        """Return the final answer: after a 202 the same question is asked again under the task's id."""
        asked = {"json": "true", **parameters}
        ends_at, task = timing.now() + self.deadline_seconds, dict[str, str]()
        while True:
            left = ends_at - timing.now()
            if left <= 0:
                raise self.http.error(f"no final answer to {path} within {span_text(self.deadline_seconds)}")
            answer = self.http.get(path, asked, task, min(left, self.http.endpoint.timeout_seconds))
            if answer.status != 202:
                return self._final(answer)
            if _TASK not in answer.headers:
                raise self.http.error(f"HTTP 202 without {_TASK}: a proxy in between may drop it")
            task = {_TASK: answer.headers[_TASK]}
            timing.sleep(min(_ASK_AGAIN_SECONDS, max(0.0, ends_at - timing.now())))

    def _final(self, answer: HttpAnswer) -> dict[str, object]:
        body = answer.json if isinstance(answer.json, dict) else {}
        if answer.status == 200 and body:
            return body
        reason = str(body.get("errorMessage", ""))
        if _WARMING_UP in reason:
            raise self._warming(shorten(reason))
        raise self.http.refusal(answer, reason)

    def _warming(self, reason: str) -> SourceError:
        return self.http.error(f"not ready: {reason}", "it warms up after a start; two finished windows are needed")


def _add(rows: Rows, names: TopicNames, record: object, last_ms: int) -> None:
    if not isinstance(record, dict) or not isinstance(record.get("partition"), int):
        rows.doubts["no record of a partition"] += 1
        return
    topic = names.topic(str(record.get("topic")))
    if topic is not None:
        values = {
            "bytes_per_second": _scale(record.get("networkInbound"), KIB),
            "records_per_second": record.get("msg_in"),
            "log_bytes": _scale(record.get("disk"), MIB),
        }
        rows.add(topic, record["partition"], last_ms, values)


def _scale(value: object, factor: float) -> object:
    """Multiply what is a number; anything else stays as it is, to be judged with the other values."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63:
        return value * factor
    return value
