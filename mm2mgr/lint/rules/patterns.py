"""Rules about patterns that match less than they say: no legal name at all, or a name where its beginning was meant.

Kafka joins the items of a list with | to one expression, which has to match a whole name
(MirrorUtils.compilePatternList, Matcher.matches).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from mm2mgr.connectors import ConnectorType
from mm2mgr.lint.findings import Hit, connector_hit, file_key, keys_ending, rule, spell
from mm2mgr.lint.hops import filter_of, items_of
from mm2mgr.lint.subject import Subject
from mm2mgr.topics.java_regex import Alt, Edge, Group, Node, Repeat, Seq
from mm2mgr.topics.names import QUOTES, matches_no_topic, meant_items, samples, shape_of
from mm2mgr.topics.shared import affixes

_BOTH: tuple[ConnectorType, ...] = ("source", "checkpoint")
LISTS = {
    "source": ("topics", "topics.exclude", "config.properties.exclude"),
    "checkpoint": ("topics", "topics.exclude", "groups", "groups.exclude"),
}
"""The lists of patterns of each type of connector."""
OF_LISTS = keys_ending("topics", "groups", ".exclude", ".filter.class", "config.properties")
_LIVE = "tests/lint/test_seen_live_topics.py::test_patterns_that_match_less_than_they_say"
_SIGNS = {
    **dict.fromkeys(QUOTES, "quotes"),
    **{
        ";": "a semicolon",
        "/": "a slash",
        "!": "an exclamation mark",
        " ": "a blank",
        "\t": "a blank",
        "\n": "a blank",
    },
}
_IN_NO_GROUP = frozenset(QUOTES + ";!")  # ids of groups may hold anything; these are in none that people choose
_META = frozenset("\\^$.|?*+()[]{}-_")
_WORD_IN_BRACKETS = re.compile(r"\[[^\]]*[A-Za-z]{3,}[^\]]*\]")
_FLAGS = re.compile(r"\(\?[a-zA-Z]+\)")
_GROUP = re.compile(r"\(\?[<=!:>]*")


@rule(
    "pattern-matches-nothing",
    "error",
    "Kafka's Topic.validate, MirrorUtils.compilePatternList",
    stops=True,
    types=_BOTH,
    live=_LIVE,
    reads=OF_LISTS,
)
def pattern_matches_nothing(subject: Subject) -> Iterator[Hit]:
    """No topic can have a name that the pattern matches.

    Names of topics have 1 to 249 letters, digits, dots, underscores and hyphens, and a pattern has to match a whole
    name. Java keeps quotes of a properties file, so `"orders.*"` looks for a topic with quotes in its name; `a;b` and
    `a b` are one name each, since only commas separate; `a/.*` is the habit of other brokers; `!a` is no negation; `[a,
    b]` is one set of letters; `^(?!a)` without `.*` behind it matches only the empty name. Connect accepts them all:
    the connector is RUNNING and mirrors nothing (error); with other items in the list, or in an exclude list, the item
    does nothing (warning). For ids of groups only quotes, semicolons, brackets and blanks count. An expression such as
    `^$`, which takes nothing on purpose, is not reported.
    """
    for key in LISTS[subject.type]:
        items = items_of(subject, key) if key in subject.config else ()
        empty = [item for item in items if _is_empty(key, item)]
        brackets = _in_brackets(subject.get(key), items)
        if not brackets and (not empty or any(shape_of(item) is None for item in items)):
            continue  # bad-pattern reports a list that is cut inside braces
        kind = "group" if key.startswith("groups") else "topic" if key.startswith("topics") else "setting of a topic"
        verb = "probably matches" if kind == "group" else "matches"
        reason = brackets or f"{_reason(empty[0], kind)}, so '{empty[0]}' {verb} nothing"
        whole = bool(brackets) or len(empty) == len(items)
        message = f"{file_key(subject, key)}: {reason}: {_effect(key, whole=whole)}"
        hit = _repair(subject, key, message, empty)
        yield hit if key == "topics" and whole else hit.with_severity("warning")


def _is_empty(key: str, item: str) -> bool:
    return matches_no_topic(item) and (not key.startswith("groups") or _sign(item) in _IN_NO_GROUP or " " in item)


def _sign(item: str) -> str:
    """Return the first character of an item that no topic's name has, "" where every one may be in it."""
    signs = (char for char in _GROUP.sub("", item) if not (char.isascii() and char.isalnum()) and char not in _META)
    return next((char for char in signs if char in _SIGNS), next(iter(re.findall(r"[^\x20-\x7e]", item)), ""))


def _reason(item: str, kind: str) -> str:
    sign = _sign(item)
    if kind == "group":
        return f"Kafka allows {_SIGNS.get(sign, 'a blank')} in the id of a group, and hardly anybody has one"
    if sign in _SIGNS:
        return f"no {kind} has {_SIGNS[sign]} in its name"
    return f"no {kind} has '{sign}' in its name" if sign else f"a pattern has to match the whole name of a {kind}"


def _in_brackets(value: str, items: Sequence[str]) -> str:
    """Return what is wrong with a list in brackets, as JSON and YAML have them; "" for any other."""
    whole = ",".join(items)
    if value.startswith("[") and value.endswith("]") and _WORD_IN_BRACKETS.fullmatch(whole) and "[" not in whole[1:]:
        return "the brackets make one set of characters, which matches names of one character"
    return ""


def _effect(key: str, *, whole: bool) -> str:
    if key.endswith(".exclude"):
        return "nothing is excluded by it"
    done = "mirrored" if key == "topics" else "checkpointed"
    return f"the connector is RUNNING, and nothing is {done}" if whole else f"nothing is {done} by it"


def _repair(subject: Subject, key: str, message: str, empty: Sequence[str]) -> Hit:
    if any(item.startswith("!") for item in empty):
        names = ", ".join(item.lstrip("!") for item in empty if item.startswith("!"))
        exclude = spell(subject, f"{key.removesuffix('.exclude')}.exclude", names)
        return Hit(message, f"remove it, and write {exclude}: there is no negation in a list", key)
    right = meant_items(subject.get(key))
    begun = all((shape := shape_of(item)) and shape.prefix for item in right)
    if right and not any(map(matches_no_topic, right)) and (begun or not any(re.search(r"\s", item) for item in empty)):
        hit = connector_hit(subject, key, ",".join(right), message)
        # What excludes more, or may take everything, or ids that somebody may have, is decided by people.
        return hit if begun and key == "topics" else Hit(hit.message, hit.fix, key)
    if any(item.endswith(")") and "(?" in item for item in empty):
        return Hit(message, "write .* behind a lookahead, which takes no character itself", key)
    return Hit(
        message, "write names as kafka-topics.sh --list shows them, or patterns of such names, and commas between", key
    )


@rule(
    "pattern-exact", "warning", "Matcher.matches in DefaultTopicFilter and DefaultGroupFilter", types=_BOTH, live=_LIVE
)
def pattern_exact(subject: Subject) -> Iterator[Hit]:
    """An anchor suggests that names begin or end with a text, but only the text itself matches.

    Kafka compares a pattern with the whole name (Matcher.matches), so ^ and $ around it change nothing: `^billing` is
    the topic billing and not billing.invoices, and `^(tmp|staging)` in topics.exclude leaves staging.orders to be
    mirrored. There is no error. For all names that begin with it write `billing.*`; for the name alone leave the anchor
    out. Patterns with .* or another open end, and those with both anchors, are as they look. Where the source's topics
    are known, only a topic that is left out by it counts.
    """
    for key in LISTS[subject.type]:
        for item in items_of(subject, key) if key in subject.config else ():
            end = _one_anchor(item)
            names = list(affixes(item).names or samples(item)) if end else []
            if not names or matches_no_topic(item) or not _matters(subject, key, names, end):
                continue
            bare = re.sub(r"(?<![\[\\])\^", "", item).removesuffix("$")
            bare = f"({bare})" if "|" in re.sub(r"\(.*\)", "", bare) else bare
            other = f"{names[0]}-x" if end == "start" else f"x-{names[0]}"
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            whole = f"{bare}.*" if end == "start" else f".*{bare}"
            effect = f"such as '{other}': Kafka compares whole names"
            message = f"{file_key(subject, key)}: '{item}' matches '{names[0]}'{more} and nothing longer, {effect}"
            begin = "begin" if end == "start" else "end"
            yield Hit(message, f"write {whole} for all that {begin} with it, or {bare} for the name alone", key)


@lru_cache(maxsize=65536)
def _one_anchor(item: str) -> str:
    """Return the only edge that an item with a fixed number of names has, "" for other items."""
    shape = shape_of(item) if "^" in item or "$" in item else None
    tree = shape.tree if shape else None
    for branch in tree.nodes if isinstance(tree, Alt) else (tree,):
        if isinstance(branch, Seq) and branch.nodes and not _is_open(branch):
            edges = [node.at for node in (branch.nodes[0], branch.nodes[-1]) if isinstance(node, Edge)]
            if len(edges) == 1:
                return edges[0]
    return ""


def _is_open(node: Node) -> bool:
    if isinstance(node, Repeat):
        return node.most is None or _is_open(node.node)
    if isinstance(node, Group):
        return _is_open(node.node)
    return isinstance(node, Seq | Alt) and any(map(_is_open, node.nodes))


def _matters(subject: Subject, key: str, names: Sequence[str], end: str) -> bool:
    """Tell whether a longer name is there that the list does not take; True where the source's topics are not known."""
    topics = subject.source_kafka.partitions
    if topics is None or not key.startswith("topics"):
        return True
    topic_filter = filter_of(subject)
    longer = [topic for topic in topics if topic not in names and _continues(topic, names, end)]
    return topic_filter is None or any(topic_filter.takes(topic) == key.endswith(".exclude") for topic in longer)


def _continues(topic: str, names: Sequence[str], end: str) -> bool:
    return topic.startswith(tuple(names)) if end == "start" else topic.endswith(tuple(names))


@rule(
    "pattern-flag-spreads",
    "warning",
    "java.util.regex.Pattern, MirrorUtils.compilePatternList",
    types=_BOTH,
    live=_LIVE,
    reads=OF_LISTS,
)
def pattern_flag_spreads(subject: Subject) -> Iterator[Hit]:
    """A flag such as (?i) also applies to the items behind it.

    Kafka joins the items of a list to one expression, in which a flag holds up to its end: with `(?i)orders.*,Payments`
    topics that are called payments or PAYMENTS are mirrored too. There is no error. Keep a flag to its item with
    `(?i:orders.*)`. In an exclude list it is a hint. Source: MirrorUtils.compilePatternList.
    """
    for key in LISTS[subject.type]:
        items = items_of(subject, key) if "(?" in subject.get(key) else ()
        for at, item in enumerate(items):
            flags = _FLAGS.match(item)
            behind = [other for other in items[at + 1 :] if re.search("[A-Za-z]", other) and not _FLAGS.match(other)]
            if flags and behind:
                right = f"{flags[0][:-1]}:{item[flags.end() :]})"
                effect = f"{flags[0]} of '{item}' also applies to the items behind it, such as '{behind[0]}'"
                message = f"{file_key(subject, key)}: {effect}"
                hit = Hit(message, f"write {right} instead of {item}", key)
                yield hit.with_severity("info") if key.endswith(".exclude") else hit
                break
