"""What a MirrorSourceConnector takes: filters, the names of topics on both sides, machines of what is left out.

A list of Java expressions may hold thousands of plain names. Tests hold `takes` and the machines together. Sources:
DefaultTopicFilter, MirrorSourceConnector, KIP-382, DefaultReplicationPolicy, IdentityReplicationPolicy.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import takewhile
from typing import Literal

from mm2mgr.errors import Mm2mgrError
from mm2mgr.spec.scalars import check_pattern, matcher
from mm2mgr.topics.automaton import (
    LONGEST_NAME,
    Backtracker,
    Both,
    Literals,
    Machine,
    Regular,
    TooLarge,
    relax,
    shortest,
)
from mm2mgr.topics.java_regex import CHARS, FILL, PLAIN, Alt, Chars, Lookaround, Repeat, Seq, Shape, shape
from mm2mgr.truth.keys import kafka_version
from mm2mgr.truth.reach import numbers

Items = tuple[str, ...]
HEARTBEATS = "heartbeats"
"""The topic of heartbeats, without the aliases that mirrors put before it."""
_MOST_SHOWN = 200
_TOPIC = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST_NAME}}}")


@cache
def shape_of(item: str) -> Shape | None:
    """Return the shape of an item, None for one that Java refuses."""
    try:
        return shape(item)
    except ValueError:
        return None


def literal(item: str) -> str | None:
    """Return the one name that an item matches, None for one that matches others too."""
    if PLAIN.fullmatch(item):
        return item.replace("\\", "")
    shape = shape_of(item)
    return shape.literal if shape else None


@cache
def readable(item: str, *, topics: bool = True) -> bool:
    """Tell whether it is known what an item matches; names of groups and settings hold other characters than topics."""
    if literal(item) is not None or is_like_python(item):
        return True
    return (topics or _alike(item)) and (
        machine_of((item,)) is not None or (_alike(item) and _backtracker(item) is not None)
    )


def is_like_python(item: str) -> bool:
    """Tell whether an expression means the same in Java and in Python, which is quick at it."""
    return _alike(item) and not _is_costly(item)


@cache
def _alike(item: str) -> bool:
    if shape_of(item) is None:
        return False
    try:
        check_pattern(item)
    except ValueError:
        return False
    return True


def _is_costly(item: str) -> bool:
    shape = shape_of(item)
    return shape is None or shape.costly


@lru_cache(maxsize=4096)
def machine_of(items: Items) -> Regular | None:
    """Return the machine of any of these items, None when one of them is not regular, not understood or too large."""
    trees = [item_shape.tree if (item_shape := shape_of(item)) else None for item in items]
    try:
        return Regular(Alt(tuple(tree for tree in trees if tree))) if None not in trees else None
    except TooLarge:
        return None


_STATES_OF_ONE_ITEM = 5_000
# Expressions that some name matches for sure: nothing in them but characters of names, and what repeats or chooses.
_OF_NAMES = re.compile(rf"(?:[A-Za-z0-9_.*+?|-]|\\[.dw_-]|\[[A-Za-z0-9._-]+\]){{1,{LONGEST_NAME}}}")
_NEVER = "\x01"  # a character that no machine reads


QUOTES = "\"'`\u2018\u2019\u201c\u201d"


def meant_items(value: str) -> list[str]:
    """Return the items of a list without quotes, brackets, semicolons and blanks that its writer took for syntax."""
    bare = re.sub(f"[{QUOTES}]", "", value.strip())
    if bare.startswith("[") and bare.endswith("]") and "[" not in bare[1:]:
        bare = bare[1:-1]
    return [item for item in re.split(r"[,;\s]+", bare) if item]


@lru_cache(maxsize=65536)
def matches_no_topic(item: str) -> bool:
    """Tell whether it is proved that an item matches no possible name of a topic; False for `^$`, which is meant."""
    if _OF_NAMES.fullmatch(item):
        return False
    shape = shape_of("".join(char if char.isascii() else _NEVER for char in item))
    if shape is None or shape.whole is None:
        return False
    try:
        machine = Regular(relax(shape.whole))
        if machine.matches("") and not any(map(str.isalnum, item)):
            return False
    except TooLarge:
        return False
    search = shortest([(machine, "")], [], _STATES_OF_ONE_ITEM)
    return search.word is None and not search.open


class _Looking:
    """An expression that begins with lookaheads, such as `(?!test).*`: a machine for each, and one for the rest."""

    def __init__(self, looks: Sequence[Lookaround], rest: Seq) -> None:
        anything = Repeat(Chars(CHARS), 0, None)
        self._looks = [(Regular(Seq((look.node, anything))), look.negative) for look in looks]
        self._rest = Regular(rest)

    def matches(self, name: str) -> bool:
        return self._rest.matches(name) and all(look.matches(name) != negative for look, negative in self._looks)


@lru_cache(maxsize=4096)
def _backtracker(item: str) -> _Looking | Backtracker | None:
    """Return what matches an item that is no regular language, None for one that is not understood or too large."""
    shape = shape_of(item)
    if shape is None or shape.whole is None:
        return None
    nodes = shape.whole.nodes if isinstance(shape.whole, Seq) else (shape.whole,)
    looks = list(takewhile(lambda node: isinstance(node, Lookaround) and not node.behind, nodes))
    try:
        return _Looking([look for look in looks if isinstance(look, Lookaround)], Seq(nodes[len(looks) :]))
    except (TooLarge, TypeError):  # what looks around elsewhere too
        pass
    try:
        return Backtracker(shape.whole)
    except TooLarge:
        return None


class TooCostly(Mm2mgrError):
    """An expression whose match would take too long, or cannot be decided here."""


def _too_costly(item: str) -> TooCostly:
    shown = item if len(item) <= _MOST_SHOWN else f"{item[:_MOST_SHOWN]}…"
    return TooCostly(
        f"the pattern '{shown}' takes too long to match",
        hint=(
            "repeat nothing that repeats already, above all beside a lookaround, a backreference or a possessive"
            " repetition"
        ),
    )


class _AnyOf:
    """Matches what one of the items does; a list may hold thousands of plain names.

    Python's expressions match what they read as Java does and are quick at; machines the rest, without going back.
    """

    def __init__(self, items: Items) -> None:
        self.literals = dict.fromkeys(name for item in items if (name := literal(item)) is not None)
        self.patterns = tuple(item for item in items if literal(item) is None)
        quick = [item for item in self.patterns if is_like_python(item)]
        # In a group, so that `matcher` does not take the dots of a plain name literally: Java does not.
        self._quick = matcher([f"(?:{item})" for item in quick], []) if quick else None
        self._others = [item for item in self.patterns if item not in set(quick) and readable(item)]
        self._unclear = next((item for item in self.patterns if _alike(item) and not readable(item)), None)

    def __call__(self, name: str) -> bool:
        if name in self.literals or (self._quick and self._quick(name)):
            return True
        if any(_matches(item, name) for item in self._others):
            return True
        if self._unclear is not None:
            raise _too_costly(self._unclear)
        return False


def _matches(item: str, name: str) -> bool:
    machine = machine_of((item,)) or _backtracker(item)
    try:
        return machine is not None and machine.matches(name)
    except TooLarge as error:
        raise _too_costly(item) from error


_any_of = lru_cache(maxsize=4096)(_AnyOf)


@dataclass(frozen=True)
class NameFilter:
    """A filter: names that match one of `include` wholly and none of `exclude`."""

    include: Items
    exclude: Items

    @cached_property
    def includes(self) -> _AnyOf:
        return _any_of(self.include)

    @cached_property
    def excludes(self) -> _AnyOf:
        return _any_of(self.exclude)

    def takes(self, name: str) -> bool:
        """Tell whether it takes a name; none is longer than Kafka allows."""
        return len(name) <= LONGEST_NAME and self.matches(name)

    def matches(self, name: str) -> bool:
        """Tell whether it takes a name of any length, as those of groups are."""
        return self.includes(name) and not self.excludes(name)


def samples(item: str, fill: str = "x") -> Iterator[str]:
    """Yield topic names that an item is likely to match."""
    shape = shape_of(item)
    for sample in shape.samples if shape else ():
        name = sample.replace(FILL, fill)
        if _TOPIC.fullmatch(name):
            yield name


def names_of_both(text: str, other: str) -> Iterator[str]:
    """Yield names of an item with a name of the other where the item takes any text."""
    for fill in ("x", ""):
        for part in samples(other, fill):
            yield from samples(text, part)


def unified_name(name: str) -> str:
    """Return what brokers compare so that no two topics share the names of their metrics (Topic.hasCollision)."""
    return name.replace(".", "_")


PolicyName = Literal["default", "identity"]
POLICIES: dict[str, PolicyName] = {"DefaultReplicationPolicy": "default", "IdentityReplicationPolicy": "identity"}


@dataclass(frozen=True)
class Selection:
    """What one source connector takes, its heartbeats aside. `policy` is None for a class that is not Kafka's.

    `separator` is as it is configured, "" included; `internal_separator` is that of internal names (KIP-949); `version`
    is the workers', "" for the newest.
    """

    names: NameFilter
    policy: PolicyName | None
    source: str
    target: str
    separator: str = "."
    internal_separator: str = "."
    version: str = ""

    def takes(self, topic: str) -> bool:
        """Tell whether a topic of the source is mirrored (MirrorSourceConnector.shouldReplicateTopic)."""
        return self.names.takes(topic) and not self.is_internal(topic) and not self.is_cycle(topic)

    def refusal(self, topic: str) -> str:
        """Return why a topic that the include list names is not mirrored; "" where it is mirrored, or not named."""
        if not self.names.includes(topic) or self.takes(topic):
            return ""
        if item := next((pattern for pattern in self.names.exclude if NameFilter((pattern,), ()).matches(topic)), ""):
            return f"excluded by {item}"
        if self.is_internal(topic):
            return "internal topics are never mirrored"
        if self.is_cycle(topic):
            return f"it has been on '{self.target}' before, by its name"
        return f"no topic has a name of more than {LONGEST_NAME} characters"

    def is_internal(self, topic: str) -> bool:
        """Tell whether the policy excludes a topic whatever the filter says (ReplicationPolicy.isInternalTopic)."""
        if topic.startswith(("__", ".")):
            return True
        if not topic.endswith("internal"):
            return False
        own = topic.endswith(f"{self.internal_separator}internal")
        if self.line >= (4, 0):  # KIP-1074
            return topic.endswith(self._checkpoints) or (own and topic.startswith("mm2"))
        return topic.endswith((".internal", "-internal")) or (own and self.line >= (3, 1))  # KIP-690

    @property
    def checkpoints_topic(self) -> str:
        """The topic on the target with the checkpoints of this source (ReplicationPolicy.checkpointsTopic)."""
        return f"{self.source}{self._checkpoints}"

    @property
    def _checkpoints(self) -> str:
        return f"{self.internal_separator}checkpoints{self.internal_separator}internal"

    def is_cycle(self, topic: str) -> bool:
        """Tell whether the policy recognises that a topic was on the target before (MirrorSourceConnector.isCycle)."""
        if self.policy != "identity":
            return self.policy is not None and self.target in self._clusters_in_name(topic)
        while topic.endswith(HEARTBEATS):  # these it reads as the default policy does
            passed = self._clusters_in_name(topic)
            if not passed or passed[0] == self.target:
                return bool(passed)
            topic = topic[len(passed[0] + self.separator) :]
        return self.source == self.target  # its topicSource is the source's alias for every other topic

    def _clusters_in_name(self, topic: str) -> list[str]:
        parts = topic.split(self.separator) if self.separator else list(topic)
        while parts and not parts[-1]:  # Java's Pattern.split drops empty texts at the end
            parts.pop()
        return parts[:-1]

    @property
    def prefix(self) -> str:
        """What the policy puts before a topic's name on the target; identity puts it before heartbeats only."""
        return "" if self.policy == "identity" else f"{self.source}{self.separator}"

    def target_name(self, topic: str) -> str:
        """Return a topic's name on the target; an unknown policy counts as the default one."""
        if self.policy == "identity" and topic.endswith(HEARTBEATS):
            return f"{self.source}{self.separator}{topic}"
        return f"{self.prefix}{topic}"

    def names_alike(self, other: Selection, topic: str) -> bool:
        """Tell whether two source connectors give a topic the same name on the target."""
        return self.target_name(topic) == other.target_name(topic)

    def upstream(self, topic: str) -> str | None:
        """Return which source topic is mirrored to this topic of the target; None for none, or an unknown policy."""
        if self.policy is None:
            return None
        upstream = topic.removeprefix(f"{self.source}{self.separator}")
        if upstream and self.target_name(upstream) == topic:
            return upstream
        return topic if self.target_name(topic) == topic else None

    def is_heartbeats(self, topic: str) -> bool:
        """Tell whether a topic holds heartbeats, own or mirrored ones (ReplicationPolicy.isHeartbeatsTopic)."""
        # From the left: of a___heartbeats it is _heartbeats.
        *_, name = topic.split(self.separator) if self.separator else [""]
        return name == HEARTBEATS

    def takes_heartbeats(self, topic: str) -> bool:
        """Tell whether it mirrors a topic as heartbeats, whatever its lists name, if it mirrors heartbeats."""
        return self.is_heartbeats(topic) and not self.is_internal(topic) and not self.is_cycle(topic)

    @cached_property
    def line(self) -> tuple[int, ...]:
        """Kafka's version in numbers, greater than any when it is not known."""
        return numbers(kafka_version(self.version) or "99")


@lru_cache(maxsize=4096)
def refused_by(selection: Selection) -> tuple[Machine, ...]:
    """Return machines of excluded names that match the include list; irregular exclude patterns are missing."""
    names = selection.names
    literals = [name for name in names.excludes.literals if names.includes(name)]
    regular = tuple(item for item in names.excludes.patterns if machine_of((item,)))
    machines = [
        machine_of((*regular, *_internal(selection))),
        _cycle(selection),
        Literals(literals) if literals else None,
    ]
    return tuple(machine for machine in machines if machine)


def _internal(selection: Selection) -> Items:
    mark = f"\\Q{selection.internal_separator}\\E"
    if selection.line >= (4, 0):
        return "__.*", r"\..*", f".*{mark}checkpoints{mark}internal", f"mm2.*{mark}internal"
    return "__.*", r"\..*", r".*[.-]internal", *((f".*{mark}internal",) if selection.line >= (3, 1) else ())


def _cycle(selection: Selection) -> Machine | None:
    if selection.policy == "identity" and selection.source == selection.target:
        return machine_of((".*",))
    return _cycles(selection.policy, selection.target, selection.separator) if selection.policy else None


@lru_cache(maxsize=1024)
def _cycles(policy: PolicyName, target: str, separator: str) -> Machine | None:
    heartbeats = machine_of((".*heartbeats",))
    by_default = _Cycle(target, separator)
    return by_default if policy == "default" else Both(by_default, heartbeats) if heartbeats else None


class _Cycle:
    """A machine for the topics that DefaultReplicationPolicy takes for mirrored from the target (`is_cycle`)."""

    start: Hashable = ("maybe", "")

    def __init__(self, target: str, separator: str) -> None:
        self._target, self._separator = target, separator
        self.letters = frozenset(frozenset(char) for char in target + separator)

    def step(self, state: Hashable, char: str) -> Hashable:
        """States: `maybe` becomes the target's alias, an `other` part, read `behind` that alias, `seen`."""
        assert isinstance(state, tuple)
        kind, read = state
        text = read + char
        if kind == "seen" or (kind == "behind" and not self._separator.startswith(text)):
            return "seen", ""
        if not self._separator:  # each letter is a part
            return ("behind", "") if char == self._target else ("other", "")
        if kind == "behind":
            return kind, "" if text == self._separator else text
        if text.endswith(self._separator):
            return ("behind", "") if kind == "maybe" and text == self._target + self._separator else self.start
        if kind == "maybe" and (self._target + self._separator).startswith(text):
            return kind, text
        return "other", next(text[at:] for at in range(len(text) + 1) if self._separator.startswith(text[at:]))

    def accepts(self, state: Hashable) -> bool:
        assert isinstance(state, tuple)
        kind, read = state
        return bool(kind == "seen" or (kind == "behind" and read))
