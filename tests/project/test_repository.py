"""Rules about the repository's own files: nothing of one machine in them, CI that runs what people run, a whole licence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from subprocess import DEVNULL, PIPE

import pytest

from tests.conftest import LONG, LONGEST

REPOSITORY = Path(__file__).resolve().parents[2]
# Written in parts, so that no pattern matches its own text here and no such name stands in this file.
_REGISTRIES = r"pypi|pythonhosted|maven|maven\.apache|npmjs|crates|proxy\.golang|deb\.debian|hub\.docker"
FORBIDDEN = {
    "a path of one machine": r"/(?:work|root|Users)/\w|/home/(?!appuser\b)\w|/tmp/(?:pytest|tmp|bash)[\w.-]",
    "a package registry": rf"\b(?:{_REGISTRIES})\.(?:org|com|io)\b",
    "a merge marker": r"^(?:<{7} |={7}$|>{7} )",
}


@cache
def files() -> dict[str, str]:
    """Return the text files that git tracks or would add, by path."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listing, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    paths = [path for path in done.stdout.split("\0") if path and (REPOSITORY / path).is_file()]
    return {path: text for path in paths if (text := text_of(REPOSITORY / path)) is not None}


def text_of(path: Path) -> str | None:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return None


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what], re.MULTILINE)
    found = [f"{path}: {hit[0]}" for path, text in files().items() for hit in pattern.finditer(text)]
    assert found == []


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("a path of one machine", "see " + "/ro" + "ot/notes"),
        ("a package registry", "https://" + "pypi" + ".org/simple"),
        ("a merge marker", "<" * 7 + " mine"),
    ],
)
def test_the_patterns_find_what_they_are_for(what: str, text: str) -> None:
    assert re.search(FORBIDDEN[what], text, re.MULTILINE)


def ci(folder: Path, docker: str = "exit 1", **commands: str) -> subprocess.Popen[str]:
    """Start CI's script in a folder where `make WHAT`, `.ci/other-versions` and Docker's command are lines of shell."""
    (folder / ".ci").mkdir()
    (folder / "bin").mkdir()
    shutil.copy(REPOSITORY / ".ci" / "run", folder / ".ci")
    cases = "\n".join(f"{what}) {line} ;;" for what, line in commands.items())
    for path in ("bin/make", ".ci/other-versions"):
        (folder / path).write_text(
            f'#!/bin/sh\nset -- "${{1:-others}}"\necho "$1" >> calls\ncase $1 in\n{cases}\nesac\n'
        )
        (folder / path).chmod(0o755)
    (folder / "bin" / "docker").write_text(f"#!/bin/sh\n{docker}\n")
    (folder / "bin" / "docker").chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    return subprocess.Popen([folder / ".ci" / "run"], env=env, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, text=True)


def test_ci_runs_what_people_run(tmp_path: Path) -> None:
    done = ci(tmp_path, test="echo tested", lint="echo clean", others="echo others tested")
    assert done.communicate(timeout=60) == ("tested\nclean\nothers tested\n", "")
    assert done.returncode == 0
    assert (tmp_path / "calls").read_text().split() == ["setup", "test", "lint", "others"]


@pytest.mark.parametrize("fails", ["test", "lint", "others"])
def test_ci_fails_with_each_of_its_steps_and_runs_the_others(tmp_path: Path, fails: str) -> None:
    done = ci(tmp_path, **{fails: "echo 1 failed; exit 3"})
    assert done.communicate(timeout=60) == ("1 failed\n", "")
    assert done.returncode == 1
    assert (tmp_path / "calls").read_text().split() == ["setup", "test", "lint", "others"]


@pytest.mark.parametrize(
    ("docker", "tried"),
    [
        ("exit 0", ["test_image.py", "test_compose_up.py"]),
        ("[ $1 != compose ]", ["test_image.py"]),
        ('[ "$1 $2" != "compose pull" ]', ["test_image.py"]),
        ("[ $1 != pull ]", []),
    ],
)
def test_ci_tries_the_image_and_compose_where_docker_can(tmp_path: Path, docker: str, tried: list[str]) -> None:
    for path in (".venv/bin", "deploy"):
        (tmp_path / path).mkdir(parents=True)
    shutil.copy(REPOSITORY / "deploy" / "Dockerfile", tmp_path / "deploy")
    (tmp_path / ".venv" / "bin" / "python").write_text('#!/bin/sh\necho "${6##*/}" >> tried\nexit 1\n')
    (tmp_path / ".venv" / "bin" / "python").chmod(0o755)
    done = ci(tmp_path, docker, test="echo tested")
    assert done.communicate(timeout=60) == ("tested\n", "")
    assert done.returncode == (1 if tried else 0)
    assert ((tmp_path / "tried").read_text().split() if tried else []) == tried


def test_ci_tests_nothing_where_nothing_could_be_installed(tmp_path: Path) -> None:
    done = ci(tmp_path, setup="exit 2")
    assert done.communicate(timeout=60) == ("", "")
    assert (done.returncode, (tmp_path / "calls").read_text()) == (2, "setup\n")


def test_the_modules_that_begin_first_and_the_long_ones_exist() -> None:
    assert [name for name in (*LONGEST, *LONG) if not list((REPOSITORY / "tests").glob(f"{name.rstrip('/')}*"))] == []


def test_the_licence_is_apache_2_in_full() -> None:
    licence = (REPOSITORY / "LICENSE").read_text()
    assert re.search(r"Apache License\s+Version 2\.0, January 2004", licence)
    assert [int(number) for number in re.findall(r"^   (\d)\. ", licence, re.MULTILINE)] == list(range(1, 10))
    assert "END OF TERMS AND CONDITIONS" in licence


def test_the_changelog_has_the_version_of_the_package() -> None:
    from mm2mgr import __version__

    headings = re.findall(r"^## \[(.+?)\]", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] in ("Unreleased", __version__)
    assert __version__ in headings
