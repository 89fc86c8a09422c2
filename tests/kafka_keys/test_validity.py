"""What validators say becomes a short notation; a sentence without one is refused."""

from __future__ import annotations

import pytest

from mm2mgr.errors import SandboxError
from tools.kafka_keys.definitions import notation


@pytest.mark.parametrize(
    ("said", "short"),
    [
        ("", ""),
        ("[0,...,900]", "[0,...,900]"),
        ("[1,...,9] or -1", "[1,...,9] or -1"),
        ("[none, all]", "[none, all]"),
        ("(case insensitive) [SSL, PLAINTEXT]", "[PLAINTEXT, SSL] in any case"),
        ("org.example.Outer$Checks@1f2e3d", "checked by Outer$Checks"),
        ("org.example.Outer$$Lambda$120/0x00007effe812ec50@41585bdd", "checked by Outer"),
        ("non-null string, unique predicate aliases", "not null; unique"),
    ],
)
def test_notation(said: str, short: str) -> None:
    assert notation(said) == short


def test_an_unknown_sentence_is_refused() -> None:
    with pytest.raises(SandboxError, match="unknown words: 'Some long advice'") as caught:
        notation("Some long advice")
    assert "definitions.py" in (caught.value.hint or "")
