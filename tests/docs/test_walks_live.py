"""Pages that are walked on a sandbox: their files, and every command in order, as a reader would do it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mm2mgr.sandbox.server import free_ports
from tests.docs.test_documents import DOCUMENTS, FENCE, REPOSITORY

pytestmark = [pytest.mark.live, pytest.mark.matrix]
# Looks at the page as a browser would, once it answers.
LOOK = """
python -c "import os, time, urllib.request as web
direct = web.build_opener(web.ProxyHandler({}))
page = b''
for second in range(90):
    try:
        page = direct.open('http://127.0.0.1:' + os.environ['PORT'] + '/').read()
    except OSError:
        pass
    if b'orders' in page:
        break
    time.sleep(1)
assert b'orders' in page, page"
"""
WALKS = ("docs/tutorial.md", "docs/how-to/stress-test.md", "docs/how-to/try-a-setting.md")
SAVED = re.compile(r"[Ss]ave this as `([^`]+)`")
INSTALLS = "python3 -m venv"  # what the tests are installed with already
SECONDS = 1_200
PORT = 8642


def script_of(page: str) -> str:
    """Return a page as a shell script: a block of YAML or Python is saved as the file that the text before it names.

    "After some seconds" before commands: each is repeated until it ends as the page says; "exit code 1": it fails so.
    """
    lines, place = ["set -e"], 0
    for match in FENCE.finditer(page):
        before = page[place : match.start()].strip().rpartition("\n\n")[2]
        saved = SAVED.findall(page[place : match.start()])
        kind, body, place = match["kind"], match["body"], match.end()
        if kind in {"yaml", "python"} and saved:
            lines.append(f"cat > {shlex.quote(saved[-1])} <<'SAVED'\n{body}SAVED")
        elif kind == "sh" and INSTALLS not in body:
            lines.append(body)
        elif kind == "console":
            commands = [line.removeprefix("$ ") for line in body.splitlines() if line.startswith("$ ")]
            lines += [as_promised(command, before) for command in commands]
    return "\n".join(lines)


def as_promised(command: str, before: str) -> str:
    if command.endswith("&"):
        return command
    code = 1 if "exit code 1" in before else 0
    outcome = f"{{ {command}; }} && code=0 || code=$?; [ $code = {code} ]"
    if re.search("after some seconds", before, re.IGNORECASE):
        return f"until {outcome}; do sleep 2; done"
    return outcome


def at_this_sandbox(script: str, page: str) -> str:
    """Let commands reach the brokers of this run: the page shows the ports of another one."""
    for alias, address in re.findall(r"^kafka +(\S+) +(\S+)$", page, re.MULTILINE):
        file = ".mm2mgr/sandbox/clusters/clusters.yaml"
        script = script.replace(address, f'"$(sed -n "s/^  {alias}: .*\\[\'\\(.*\\)\'\\].*/\\1/p" {file})"')
    return script


def headings(page: str) -> list[str]:
    """Return the first line of each output that the page shows, such as the columns of a table, up to a number."""
    outputs = (match["body"].splitlines() for match in FENCE.finditer(page) if match["kind"] == "console")
    texts = ([line for line in lines if not line.startswith("$ ") and line != "..."] for lines in outputs)
    return [re.split(r"\d", lines[0])[0] for lines in texts]


@pytest.mark.parametrize("name", WALKS)
def test_every_command_of_the_page_does_what_it_says(name: str, tmp_path: Path) -> None:
    page, shim = DOCUMENTS[name], tmp_path / "bin" / "mm2mgr"
    shim.parent.mkdir()
    for program, words in (("mm2mgr", "-m mm2mgr "), ("python", "")):
        shim.with_name(program).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words}"$@"\n')
        shim.with_name(program).chmod(0o755)
    (port,) = free_ports(1)
    surroundings = {
        **os.environ,
        "PATH": f"{shim.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "MM2MGR_STATE": str(tmp_path / "state"),
        "MM2MGR_SPARK": "off",
        "COLUMNS": "160",
        "PORT": str(port),
    }
    stop = "trap 'mm2mgr sandbox down; kill $(jobs -p) 2> /dev/null' EXIT\n"  # where the page does not come so far
    script = at_this_sandbox(script_of(page), page).replace(
        "mm2mgr serve &", f"mm2mgr serve --listen 127.0.0.1:{port} &\n{LOOK}"
    )
    done = subprocess.run(
        ["bash", "-c", stop + script],
        cwd=tmp_path,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    print(done.stdout, done.stderr, sep="\n--- stderr ---\n")
    assert done.returncode == 0
    said = " ".join((done.stdout + done.stderr).replace(f":{port}", f":{PORT}").split())
    for heading in headings(page):
        assert " ".join(heading.split()) in said
