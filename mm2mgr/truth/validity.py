"""Turns what a Kafka validator says of itself into a short, stable notation. Pure.

In: the validator's text; out: "[0,...,900]", "[none, all]", "not empty" and the like. Sentences never pass: each is mapped
to a few words here, and an unknown one is an error of whoever regenerates the data.
"""

from __future__ import annotations

import re

from mm2mgr.errors import SandboxError

# What the validator says → what the data says. A group is put back with \1.
_WORDS: tuple[tuple[str, str], ...] = (
    (r"non-empty string", "not empty"),
    (r"non-empty string without ISO control characters", "not empty; no control characters"),
    (r"non-null string", "not null"),
    (r"non-null string, unique (?:\w+ )+(?:aliases|groups)", "not null; unique"),
    (r"A concrete subclass of ([\w.$]+), .*", r"subclass of \1"),
    (r"Positive number\b.*-1 .*", "[1,...] or -1"),
    (r"List of comma-separated URLs.*", "URLs"),
    (r"Comma-separated header rules.*", "header rules"),
    (r"Any (KeyGenerator|MAC) algorithm.*", r"\1 algorithm of the JVM"),
    (r"A list of one or more MAC algorithms.*", "MAC algorithms of the JVM"),
    (r"valid configs for \S+ (?:transformation|predicate)", "plugin class"),
)
_RANGE = re.compile(r"\[[^\[\]]*\.\.\.[^\[\]]*\](?: or -1)?")
_CHOICE = re.compile(r"\[[^\[\]]*\]")
_ANY_CASE = re.compile(r"\(case insensitive\) \[([^\[\]]*)\]")
_OBJECT = re.compile(r"([\w.$]+?)(?:\$\$Lambda[^@]*)?@[0-9a-f]+")


def notation(said: str) -> str:
    """Return the short form of a validator's text; raises SandboxError for a sentence that is not in the table."""
    if said == "" or _RANGE.fullmatch(said) or _CHOICE.fullmatch(said):
        return said
    if found := _ANY_CASE.fullmatch(said):
        # Java's sets have an order of their own in each run.
        return f"[{', '.join(sorted(found[1].split(', ')))}] in any case"
    if found := _OBJECT.fullmatch(said):  # it has no text of its own, only its class has a name
        return f"checked by {found[1].rpartition('.')[2]}"
    for sentence, short in _WORDS:
        if found := re.fullmatch(sentence, said):
            return found.expand(short)
    raise SandboxError(
        f"a Kafka validator describes itself in unknown words: {said[:120]!r}",
        hint="give them a short form in mm2mgr/truth/validity.py",
    )
