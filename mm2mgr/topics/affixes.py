"""What the names of an item begin and end with, and the names themselves where they are few: a quick look before automata are walked.

In: items in their Java form. Out: short lists of texts. What is said holds for every name; what is left out ("" as a start) is open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from mm2mgr.topics.names import shape_of
from mm2mgr.topics.syntax import TOPIC_CHARS, Alt, Chars, Group, Node, Repeat, Seq

_MOST_TEXTS, _MOST_REPEATS, _LONGEST = 64, 8, 249
_Texts = dict[str, bool]  # text → whether nothing follows it


@dataclass(frozen=True)
class Affixes:
    """Each name begins with one of `starts` and ends with one of `ends`; `names` are all of them, None when they are many."""

    starts: tuple[str, ...]
    ends: tuple[str, ...]
    names: tuple[str, ...] | None = None


@lru_cache(maxsize=65536)
def affixes(item: str) -> Affixes:
    """Look at both ends of an item."""
    found = shape_of(item)
    if found is None:
        return Affixes((), (), ())
    if found.tree is None:
        return Affixes((found.prefix,), (found.suffix,))
    starts = _after(found.tree, {"": True}, backwards=False)
    ends = _after(found.tree, {"": True}, backwards=True)
    return Affixes(tuple(starts), tuple(ends), tuple(starts) if all(starts.values()) else None)


def meet(ones: Iterable[str], others: Iterable[str], *, at_end: bool = False) -> bool:
    """Tell whether a name can begin (or end) with one of each."""
    others = tuple(others)
    if at_end:
        return any(one.endswith(other) or other.endswith(one) for one in ones for other in others)
    return any(one.startswith(other) or other.startswith(one) for one in ones for other in others)


def _after(node: Node, texts: _Texts, *, backwards: bool) -> _Texts:
    """Go on with a node behind (or before) each text that is not cut."""
    if not any(texts.values()):
        return texts
    if isinstance(node, Chars):
        return _longer(node, texts, backwards=backwards)
    if isinstance(node, Group):
        return _after(node.node, texts, backwards=backwards)
    if isinstance(node, Seq):
        for each in reversed(node.nodes) if backwards else node.nodes:
            texts = _after(each, texts, backwards=backwards)
    elif isinstance(node, Alt):
        texts = _merged([_after(each, texts, backwards=backwards) for each in node.nodes], texts)
    elif isinstance(node, Repeat):
        for _ in range(min(node.least, _MOST_REPEATS)):
            before, texts = texts, _after(node.node, texts, backwards=backwards)
            if texts == before:
                break
        if node.most is None or node.most > _MOST_REPEATS:
            return dict.fromkeys(texts, False)
        ways = [texts]
        for _ in range(node.most - node.least):
            ways.append(_after(node.node, ways[-1], backwards=backwards))
            if ways[-1] == ways[-2]:
                break
        texts = _merged(ways, texts)
    return texts


def _longer(node: Chars, texts: _Texts, *, backwards: bool) -> _Texts:
    going_on = [text for text, whole in texts.items() if whole]
    of = node.of & TOPIC_CHARS
    if len(texts) + len(going_on) * len(of) > _MOST_TEXTS or any(len(text) >= _LONGEST for text in going_on):
        return dict.fromkeys(texts, False)
    longer = {char + text if backwards else text + char: True for text in going_on for char in sorted(of)}
    return _merged([{text: False for text, whole in texts.items() if not whole}, longer], texts)


def _merged(ways: Iterable[_Texts], before: _Texts) -> _Texts:
    """Put texts together; when they become too many, those from before are cut where they are."""
    found: _Texts = {}
    for each in ways:
        for text, whole in each.items():
            found[text] = found.get(text, True) and whole
    return found if len(found) <= _MOST_TEXTS else dict.fromkeys(before, False)
