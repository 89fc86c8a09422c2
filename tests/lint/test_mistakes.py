"""What is said about connectors' files that cannot be read: syntax, and documents that hold no connector."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.errors import SpecError
from mm2mgr.lint.reading import read_files
from tests.mistakes import cases, check

FILES = Path(__file__).parent / "mistakes"
SUFFIXES = {"json": "json", "properties": "properties", "resources": "yaml"}


@pytest.mark.parametrize("name", cases(FILES))
def test_a_file_that_cannot_be_read_is_answered_with_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(f"x.{SUFFIXES[name.partition(':')[0]]}")
    path.write_text(cases(FILES)[name][0], encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        read_files([path])
    check(FILES, name, caught.value.message.splitlines())
