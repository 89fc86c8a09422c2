"""Paths of this machine in texts for readers on other machines: each is replaced by what it is to them."""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import cache_folder, state_folder

_NO_FOLDERS = frozenset({"", ".", "/"})


class LocalPaths:
    """Paths of this machine, each with the words for it; a file below a folder keeps its place below those."""

    def __init__(self, words: Mapping[str, str] = {}) -> None:
        self._words = {path: word for path, word in words.items() if path not in _NO_FOLDERS}

    @classmethod
    def of_process(cls, store: Path | str, files: Iterable[Path], others: Iterable[Path | None] = ()) -> LocalPaths:
        """Return those that texts of a process may name: its store, the files of its tree, and others by their name."""
        words = {os.getcwd(): "the working folder"}
        for word, folder in (("the cache folder", cache_folder), ("the state folder", state_folder)):
            try:
                words[str(folder())] = word
            except Mm2mgrError:  # no home, and so no such folder
                continue
        for file in (*files, *filter(None, others)):
            if file.is_absolute():
                words[str(file)] = file.name
        if "://" not in str(store):
            names = {os.path.abspath(store), *([str(store)] if "/" in str(store) else [])}  # no word of a sentence
            words |= dict.fromkeys(names, "the store")
        return cls(words)

    def hide(self, text: str) -> str:
        """Return a plain text without these paths."""
        return self._hide(text, str)

    def hide_in_html(self, page: str) -> str:
        return self._hide(page, html.escape)

    def hide_in_json(self, body: str) -> str:
        return self._hide(body, lambda path: json.dumps(path, ensure_ascii=False)[1:-1])

    def _hide(self, text: str, write: Callable[[str], str]) -> str:
        words = {write(path): write(word) for path, word in self._words.items()}
        if not any(path in text for path in words):
            return text  # as ever, and faster
        paths = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
        return re.sub(rf"(?<![\w/.:$-])(?:{paths})(?![\w-]|\.\w)", lambda path: words[path[0]], text)
