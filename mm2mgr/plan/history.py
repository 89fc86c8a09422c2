"""What the history says: changes by whom and when, and the config that each connector was last given. Pure.

It stands in one compacted topic on the Kafka cluster that a Connect cluster runs on, masked; `apply.history` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from mm2mgr.comparison.differences import Named
from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.questions import TextsByKey
from mm2mgr.live.snapshot import Steps
from mm2mgr.topology import Topology

ENTRY, CONFIG = "entry/", "config/"
"""How the keys of entries and of configs begin."""


@dataclass(frozen=True)
class HistoryEntry:
    """One change of one connector. `keys` and `state` are as plans show them: from what to what, secrets masked.

    `outcome` is `begun` until it is known: an entry that stays so is of a command that was killed.
    """

    id: str
    when: str
    who: str
    commit: str
    command: str
    owner: str
    connect: str
    connector: str
    flows: tuple[str, ...] = ()
    action: str = ""
    reason: str = ""
    keys: tuple[Mapping[str, Any], ...] = ()
    state: Mapping[str, str] | None = None
    outcome: str = "begun"
    error: str | None = None

    @classmethod
    def parse(cls, text: str) -> HistoryEntry | None:
        """Read what was written, which anybody may have done who may write to the topic; None where it is something
        else.
        """
        try:
            read = json.loads(text)
            fields_read = {name: read[name] for name in (field.name for field in fields(cls)) if name in read}
            keys = tuple({"before": None, "after": None, **key} for key in read["keys"])
            entry = replace(cls(**fields_read), flows=tuple(read["flows"]), keys=keys)
            is_dated = datetime.fromisoformat(entry.when).tzinfo is not None
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            return None
        return entry if is_dated and entry._is_of_its_types() else None

    def _is_of_its_types(self) -> bool:
        words = [getattr(self, column.name) for column in fields(self) if column.type == "str"]
        shown = [key[side] for key in self.keys for side in ("before", "after")]
        state = {"after": ""} if self.state is None else self.state
        return (
            isinstance(state, dict)
            and all(isinstance(text, str) for text in (*words, *self.flows, *(key.get("key") for key in self.keys)))
            and all(text is None or isinstance(text, str) for text in (self.error, *shown, *state.values()))
            and isinstance(state.get("after"), str)
        )


@dataclass(frozen=True)
class History:
    """What the topics hold of one owner: entries, newest last, and the config that each connector was last given,
    secrets masked.

    `unread` has the Connect clusters whose history could not be read, with the reason.
    """

    entries: tuple[HistoryEntry, ...] = ()
    applied: Mapping[Named, Mapping[str, str]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)


def read_topics(aliases: Iterable[str]) -> Steps[dict[str, dict[str, str] | str]]:
    """Read the topic on each of these Kafka clusters: the text of each key, or why it could not be read."""
    questions = [TextsByKey(alias, HISTORY_TOPIC) for alias in sorted(aliases)]
    snapshot = yield questions
    answers = ((question.cluster, snapshot.get(question)) for question in questions)
    return {alias: answer.one_line if isinstance(answer, Mm2mgrError) else answer for alias, answer in answers}


def read_history(topology: Topology, connects: Iterable[str] | None = None) -> Steps[History]:
    """Read what is recorded of this tree's owner on some Connect clusters, or on all."""
    every = set(topology.connects if connects is None else connects)
    wanted = {connect for connect in every if topology.connects[connect].model.history}
    answers = yield from read_topics({topology.connects[connect].kafka for connect in wanted})
    entries, applied = list[HistoryEntry](), dict[Named, Mapping[str, str]]()
    unread = dict.fromkeys(sorted(every - wanted), "the tree says history: false")
    for alias, answer in answers.items():
        here = {connect for connect in wanted if topology.connects[connect].kafka == alias}
        if isinstance(answer, str):
            unread.update(dict.fromkeys(sorted(here), answer))
            continue
        entries_read = (HistoryEntry.parse(text) for key, text in answer.items() if key.startswith(ENTRY))
        entries += [
            entry for entry in entries_read if entry and entry.owner == topology.owner and entry.connect in here
        ]
        for connect in here:
            start = f"{CONFIG}{topology.owner}/{connect}/"
            applied |= {
                (connect, key.removeprefix(start)): config
                for key, text in answer.items()
                if key.startswith(start) and (config := _config(text))
            }
    return History(tuple(sorted(entries, key=lambda entry: (entry.when, entry.id))), applied, unread)


def _config(text: str) -> dict[str, str] | None:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return {str(key): str(value) for key, value in read.items()} if isinstance(read, dict) else None
