"""Pages that are walked on a sandbox: their files, and every command in order, as a reader would do it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_documents import DOCUMENTS, FENCE, REPOSITORY

pytestmark = [pytest.mark.live, pytest.mark.matrix]
WALKS = ("docs/how-to/stress-test.md", "docs/how-to/try-a-setting.md")
SAVED = re.compile(r"Save this as `([^`]+)`")
SECONDS = 1_200


def script_of(page: str) -> str:
    """Return a page as a shell script: a YAML block is saved as the file that the text before it names."""
    lines, place = ["set -e"], 0
    for match in FENCE.finditer(page):
        saved = SAVED.findall(page[place : match.start()])
        kind, body, place = match["kind"], match["body"], match.end()
        if kind == "yaml" and saved:
            lines.append(f"cat > {shlex.quote(saved[-1])} <<'SAVED'\n{body}SAVED")
        elif kind == "sh":
            lines.append(body)
        elif kind == "console":
            lines += [line.removeprefix("$ ") for line in body.splitlines() if line.startswith("$ ")]
    return "\n".join(lines)


def headings(page: str) -> list[str]:
    """Return the first line of each output that the page shows, such as the columns of a table, up to a number."""
    outputs = (match["body"].splitlines() for match in FENCE.finditer(page) if match["kind"] == "console")
    texts = ([line for line in lines if not line.startswith("$ ") and line != "..."] for lines in outputs)
    return [re.split(r"\d", lines[0])[0] for lines in texts]


@pytest.mark.parametrize("name", WALKS)
def test_every_command_of_the_page_does_what_it_says(name: str, tmp_path: Path) -> None:
    page, shim = DOCUMENTS[name], tmp_path / "bin" / "mm2mgr"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m mm2mgr "$@"\n')
    shim.chmod(0o755)
    surroundings = {
        **os.environ,
        "PATH": f"{shim.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "MM2MGR_STATE": str(tmp_path / "state"),
        "MM2MGR_SPARK": "off",
        "COLUMNS": "160",
    }
    stop = "trap 'mm2mgr sandbox down' EXIT\n"  # where the page does not come so far
    done = subprocess.run(
        ["bash", "-c", stop + script_of(page)],
        cwd=tmp_path,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    print(done.stdout, done.stderr, sep="\n--- stderr ---\n")
    assert done.returncode == 0
    said = " ".join(done.stdout.split())
    for heading in headings(page):
        assert " ".join(heading.split()) in said
