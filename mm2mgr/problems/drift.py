"""Drift that can be the cause of another problem of the same connector: they are one problem, not two. Pure.

A config that was changed by hand, or that an older tree wrote, makes a connector FAIL or do nothing; a restart fails
again, an apply repairs it. Which keys can be the cause is told by the problem: a refused login follows from keys of
logins and addresses, a missing class from keys that name classes. Drift in other keys stays a problem of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from mm2mgr.problems.connectors import CLASS_MISSING, PLUGIN_MISSING, ConfigDiffers, Failed
from mm2mgr.problems.flows import OldTaskConfig
from mm2mgr.problems.kind import LiveProblem
from mm2mgr.spec.scalars import PREFIX_BLOCKS

_REACH = r"bootstrap\.servers|security\.|sasl\.|ssl\.|dns\.lookup|^enabled$"
_TIMES = r"timeout\.ms|max\.block\.ms|backoff|retries$|buffer\.memory|^errors\."
_SIZES = r"request\.size|batch\.size|buffer\.memory|fetch\.|max\.poll\.records|compression|receive\.|^tasks\.max$"
_NAMES = r"^topics|^groups|replication\.policy|topic\.location|cluster\.alias|auto\.create|^enabled$"
_CLASSES = r"\.class(es)?$|converter|serializer|^transforms|^predicates|reporters"
_HARMLESS = re.compile(r"^tasks\.max$|^topics|^groups|interval\.seconds$|\.enabled$|^mm2mgr\.")


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns))


KEYS_OF_CAUSES: Mapping[str, re.Pattern[str]] = {
    PLUGIN_MISSING: _any_of(_CLASSES),
    CLASS_MISSING: _any_of(_CLASSES),
    "out-of-memory": _any_of(_SIZES),
    "authentication": _any_of(_REACH),
    "authorisation": _any_of(_REACH, _NAMES),
    "record-size": _any_of(_SIZES),
    "record-refused": _any_of(r"^config\.propert|^sync\.topic\.configs|^transforms"),
    "deserialisation": _any_of(_CLASSES),
    "unknown-topic": _any_of(_REACH, _NAMES),
    "time-out": _any_of(_REACH, _TIMES),
    "unavailable": _any_of(_REACH, _TIMES),
    "fenced": _any_of(r"transaction|max\.poll\.records|timeout\.ms"),
    "bug": _any_of(_CLASSES),
}
_KEYS_OF_KINDS: Mapping[str, re.Pattern[str]] = {
    "no-status": _any_of(_REACH),
    "connector-unassigned": _any_of(_REACH),
    "no-task": _any_of(_REACH, _NAMES),
    "heartbeat-without-task": _any_of(_REACH, r"^emit\.heartbeats\.enabled$"),
    "no-topic-matches": _any_of(_NAMES),
    "no-progress": _any_of(_REACH, _TIMES, _SIZES.partition("|^tasks")[0], _CLASSES),
    "records-not-on-target": _any_of(_REACH, _NAMES),
    "target-topic-missing": _any_of(_REACH, _NAMES),
    "target-partitions-fewer": _any_of(_REACH, _NAMES, r"^refresh\.topics\.enabled$"),
    "partitions-unassigned": _any_of(_REACH, _NAMES, r"^refresh\.topics\.|\.class$"),
    "partitions-in-two-tasks": _any_of(r"^connector\.class$"),
    "topic-configs-differ": _any_of(r"^config\.propert|^sync\.topic\.configs\.enabled$"),
    "topic-acls-differ": _any_of(r"^sync\.topic\.acls\.enabled$"),
    "heartbeats-not-emitted": _any_of(_REACH, _NAMES, r"^emit\.heartbeats\.enabled$"),
    "checkpoints-not-emitted": _any_of(_REACH, _NAMES, r"^emit\.checkpoints\.enabled$"),
}
_KEEP_OLD_TASKS = frozenset({"connector-failed", "connector-unassigned", "no-status"})
"""With these a connector gives its tasks no new config."""


def join_causes(problems: Iterable[LiveProblem]) -> tuple[LiveProblem, ...]:
    """Return the problems of one connector, its drift and the older config of tasks told by the problem that they can
    be the cause or a part of; what they are not stays a problem of its own."""
    judged = tuple(problems)
    drift = next((problem for problem in judged if isinstance(problem.evidence, ConfigDiffers)), None)
    old = next((problem for problem in judged if isinstance(problem.evidence, OldTaskConfig)), None)
    if drift is None and old is None:
        return judged
    keys = drift.evidence.keys if drift and isinstance(drift.evidence, ConfigDiffers) else ()
    old_keys = old.evidence.keys if old and isinstance(old.evidence, OldTaskConfig) else ()
    joined: dict[int, LiveProblem] = {}
    explained, is_told = set[str](), not old
    for place, problem in enumerate(judged):
        if problem is drift or problem is old:
            continue
        causes = _causes(problem, keys)
        explained.update(causes)
        has_old = old is not None and _has_old_config(problem, old, old_keys, causes)
        is_told = is_told or has_old
        joined[place] = replace(problem, drift=causes, older=old_keys if has_old else ())
    rest = tuple(key for key in keys if key not in explained)
    for place, problem in enumerate(judged):
        if problem is drift and rest and isinstance(problem.evidence, ConfigDiffers):
            is_same = not is_told and bool(old_keys) and set(old_keys) <= set(rest)
            is_told = is_told or is_same
            evidence = replace(problem.evidence, keys=rest)
            joined[place] = replace(problem, evidence=evidence, older=old_keys if is_same else ())
    if old is not None and not is_told:
        joined[judged.index(old)] = old
    return tuple(joined[place] for place in sorted(joined))


def _causes(problem: LiveProblem, keys: Sequence[str]) -> tuple[str, ...]:
    """Return those of the keys that can be the cause of a problem: those that the trace of a failure names, else those
    that its cause follows from."""
    if not isinstance(problem.evidence, Failed):
        pattern = _KEYS_OF_KINDS.get(problem.kind)
        return tuple(key for key in keys if pattern and pattern.search(key))
    named = tuple(key for key in keys if _names(problem.evidence.trace_summary, key))
    if named and problem.cause in {"configuration", "bug"}:
        return named
    if problem.cause == "configuration":
        return tuple(key for key in keys if not _HARMLESS.search(key))
    pattern = KEYS_OF_CAUSES.get(problem.cause)
    return tuple(key for key in keys if pattern and pattern.search(key))


def _names(text: str, key: str) -> bool:
    plain = next((key.removeprefix(prefix) for prefix in PREFIX_BLOCKS if key.startswith(prefix)), key)
    return re.search(rf"(?<![\w.]){re.escape(plain)}(?![\w]|\.\w)", text) is not None


def _has_old_config(problem: LiveProblem, old: LiveProblem, old_keys: Sequence[str], causes: Sequence[str]) -> bool:
    """Tell whether tasks have an older config for the same reason: their connector does not start with the new one, or
    they FAILED with the older one."""
    if problem.kind in _KEEP_OLD_TASKS or (causes and set(old_keys) <= set(causes)):
        return True
    is_of_them = bool(problem.subject.tasks) and set(problem.subject.tasks) <= set(old.subject.tasks)
    return problem.kind == "task-failed" and is_of_them and bool(_causes(problem, old_keys))
