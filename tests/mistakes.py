"""Cases of mistakes as text: a title (`###`), what somebody wrote, and what must be said about it (`=>`)."""

from __future__ import annotations

import os
import re
from pathlib import Path


def cases(folder: Path) -> dict[str, tuple[str, list[str]]]:
    """Return text and messages of each case by file and title."""
    found = {}
    for file in sorted(folder.glob("*.txt")):
        for case in re.split(r"^### ", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            title, _, body = case.partition("\n")
            lines = body.splitlines(keepends=True)
            text = "".join(line for line in lines if not line.startswith("=> "))
            found[f"{file.stem}: {title}"] = text, [line[3:].rstrip() for line in lines if line.startswith("=> ")]
    return found


def check(folder: Path, name: str, found: list[str]) -> None:
    """Compare the whole answer with that of the case; `UPDATE_MISTAKES=1` writes it down instead, for a person to read."""
    text, wanted = cases(folder)[name]
    if os.environ.get("UPDATE_MISTAKES"):
        stem, _, title = name.partition(": ")
        path = folder / f"{stem}.txt"
        block = "".join(["### ", title, "\n", text, *(f"=> {line}\n" for line in found)])
        old = re.compile(rf"^### {re.escape(title)}\n.*?(?=^### |\Z)", re.MULTILINE | re.DOTALL)
        path.write_text(old.sub(lambda _: block, path.read_text(encoding="utf-8"), count=1), encoding="utf-8")
    else:
        assert found == wanted
