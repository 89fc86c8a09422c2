"""What can go wrong with a table of a store, in words: rights, storage that does not answer, a log that makes no
sense.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake.exceptions import DeltaError

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import Store, is_remote

_REASON = re.compile(r"([A-Z][^:\n]*) \(os error \d+\)")
# The library raises the last two for logs whose entries are no such actions as they should be.
_FAILURES = (OSError, DeltaError, pa.ArrowException, ValueError, KeyError)
_LOG_IS_WRONG = re.compile(
    r"Kernel error: (?!.*(?:object store|os error|[Pp]ermission))|Invalid JSON|Json error", re.DOTALL
)


@contextmanager
def writing(place: Store) -> Iterator[None]:
    """Turn failures to write into a Mm2mgrError that names the place."""
    try:
        yield
    except _FAILURES as error:
        hint = "check the rights and the space there; what was written before stays readable"
        raise _of_log(place, error) or Mm2mgrError(f"cannot write to {place}: {_reason(error)}", hint=hint) from error


@contextmanager
def reaching(place: str) -> Iterator[None]:
    """Turn failures to read a table into a Mm2mgrError that names it."""
    try:
        yield
    except _FAILURES as error:
        hint = (
            "check the rights there" if not is_remote(place) else "check the URI, and that the credentials may read it"
        )
        raise _of_log(place, error) or Mm2mgrError(
            f"cannot read the table {place}: {_reason(error)}", hint=hint
        ) from error


def _of_log(place: Store, error: BaseException) -> Mm2mgrError | None:
    text = str(error)
    if "Unsupported" in text and "version" in text:
        hint = "install a newer version of the Python package deltalake, or read it with what wrote it"
        return Mm2mgrError(f"the table {place} has a format that is too new: {_reason(error)}", hint=hint)
    is_strange = isinstance(error, ValueError | KeyError) and not isinstance(error, OSError)
    return damaged_log(place, _reason(error)) if is_strange or _LOG_IS_WRONG.search(text) else None


def damaged_log(place: Store, reason: str) -> Mm2mgrError:
    """Return the error about a log that does not say what is in its table."""
    hint = (
        "bring back the files of its _delta_log, or move the table away and keep it: the next command that writes"
        " begins a new one"
    )
    return Mm2mgrError(f"the log of the table {place} is damaged: {reason}", hint=hint)


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    text = str(error)
    if named := _REASON.search(text):
        return named[1]
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return re.sub(r"\?\S+", "?…", first)[:300]  # a query may hold a signature
