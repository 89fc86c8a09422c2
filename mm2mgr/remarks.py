"""A remark: what is so of a change, what that does to it, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Effect = Literal["blocks", "waits", "rests", "warns", "notes"]


@dataclass(frozen=True)
class Remark:
    """`effect` is what it does: the change is not written (blocks), not now (waits), leaves the state that somebody
    chose (rests), is written all the same (warns), or is only explained (notes).

    `remedy` says what to do about it, and `rule` which rule says so ("": none).
    """

    text: str
    effect: Effect = "blocks"
    remedy: str = ""
    rule: str = ""

    def __str__(self) -> str:
        return f"{self.rule}: {self.text.rstrip('.')}" if self.rule else self.text


def texts_of(remarks: Iterable[Remark], effect: Effect) -> str:
    """Return what the remarks of one effect say, each once."""
    return "; ".join(dict.fromkeys(str(remark) for remark in remarks if remark.effect == effect))
