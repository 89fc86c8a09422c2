"""Retries a call until its deadline, and reads back a write whose answer was lost before it is repeated.

It knows no endpoint: a `Check` of the client proves that a write took effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from mm2mgr.connect.errors import (
    AlreadyExists,
    Answer,
    Call,
    ConnectBusy,
    ConnectError,
    ConnectUnreachable,
    NotFound,
    OutcomeUnknown,
    WrongBody,
    error_of,
)
from mm2mgr.connect.wire import ConnectHttp, Deadline

READ_DEADLINE_SECONDS = 60.0
# A write must outlast the 90 s after which a worker gives up, and leave time to read back what became of it.
WRITE_DEADLINE_SECONDS = 120.0
LONGEST_BACKOFF_SECONDS = 5.0

T = TypeVar("T")
Check = Callable[[Deadline], Awaitable[bool]]


class Caller:
    """The calls of one client; a `deadline_seconds` of None means 60 s for reads and 120 s for writes."""

    def __init__(self, wire: ConnectHttp, deadline_seconds: float | None, first_backoff_seconds: float) -> None:
        self._wire = wire
        self._deadline_seconds = deadline_seconds
        self._first_backoff_seconds = first_backoff_seconds

    async def read(self, call: Call, deadline: Deadline | None = None) -> Answer:
        """Return the answer of a call that changes nothing, inside the given deadline or one of its own."""
        deadline = deadline or self._deadline(READ_DEADLINE_SECONDS)
        return await self._retrying(deadline)(self._exchange, call, deadline)

    async def write(self, call: Call, happened: Check | None) -> Answer | None:
        """Return the answer, or None when it was lost and `happened` showed that the write is in place.

        Raises OutcomeUnknown when that is unknown; with `happened` None, whenever the answer is lost.
        """
        deadline = self._deadline(WRITE_DEADLINE_SECONDS)
        attempts = 0

        async def attempt() -> Answer | None:
            nonlocal attempts
            attempts += 1
            try:
                return await self._exchange(call, deadline)
            except OutcomeUnknown as lost:
                if await self._resolved(lost, happened, deadline):
                    return None
                what = f"{lost.message}; reading back showed that it had not happened"
                raise ConnectBusy(what, hint=lost.hint, cluster=lost.cluster, connector=lost.connector) from lost
            except (AlreadyExists, NotFound):
                # An earlier attempt may have done it after all: then this is what it looks like.
                if attempts > 1 and happened and await self._shows(happened, deadline):
                    return None
                raise

        return await self._retrying(deadline)(attempt)

    async def _resolved(self, lost: OutcomeUnknown, happened: Check | None, deadline: Deadline) -> bool:
        if happened is None:
            raise lost
        try:
            return await self._shows(happened, deadline)
        except ConnectError as unreadable:
            # Not repeated: without reading back, that would be a second blind write.
            raise lost from unreadable

    async def _shows(self, happened: Check, deadline: Deadline) -> bool:
        # Followers learn of a write a moment after the leader did.
        for pause in (0.0, self._first_backoff_seconds, 4 * self._first_backoff_seconds):
            await asyncio.sleep(min(pause, deadline.left()))
            if await happened(deadline):
                return True
        return False

    async def _exchange(self, call: Call, deadline: Deadline) -> Answer:
        answer = await self._wire.send(call, deadline)
        error = error_of(answer, call)
        if error is None:
            return answer
        if isinstance(error, ConnectBusy | OutcomeUnknown):
            self._wire.turn_from(answer.url)
        raise error

    def _deadline(self, default_seconds: float) -> Deadline:
        return Deadline.after(default_seconds if self._deadline_seconds is None else self._deadline_seconds)

    def _retrying(self, deadline: Deadline) -> AsyncRetrying:
        def passes(error: BaseException) -> bool:
            return isinstance(error, ConnectBusy) or (isinstance(error, ConnectUnreachable) and self._wire.reached)

        def stop(state: RetryCallState) -> bool:
            return state.upcoming_sleep >= deadline.left()

        # Random over the whole interval: hundreds of connectors are refused by the same rebalance at once.
        wait = wait_random_exponential(multiplier=self._first_backoff_seconds, max=LONGEST_BACKOFF_SECONDS)
        return AsyncRetrying(retry=retry_if_exception(passes), wait=wait, stop=stop, reraise=True)


def parsed(answer: Answer, call: Call, parse: Callable[[object], T]) -> T:
    """Return the answer's body as a value; WrongBody names the Connect cluster and what was wrong."""
    data = answer.json(call)
    try:
        return parse(data)
    except WrongBody as wrong:
        hint = "The Connect cluster may be older than Kafka 2.3, or something else answers at its `url`."
        raise call.error(WrongBody, wrong.message, hint=hint, status=answer.status) from wrong
