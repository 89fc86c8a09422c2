"""Proves the built wheel, with the source tree out of sight: its data files are in it, and it renders the estate alike."""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DATA_SUFFIXES = {".j2", ".jar", ".lock", ".properties", ".yaml", ".json", ".html", ".css", ".js", ".svg"}


def built_wheel(target: Path, **environment: str) -> Path:
    """Build the wheel into a folder, with these variables in the environment."""
    # No isolation: the build backend is a development dependency, so that no test downloads anything.
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    command = [*build, str(target), str(REPOSITORY)]
    env = os.environ | environment
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = target.glob("mm2mgr-*.whl")
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def render(python_path: Path, directory: Path) -> tuple[Path, list[dict[str, Any]]]:
    """Render `clusters` in a directory with the package found on a path; return which package ran, and its answer."""
    code = "import sys, mm2mgr; print(mm2mgr.__file__, file=sys.stderr); from mm2mgr.cli import main; main()"
    command = [sys.executable, "-c", code, "render", "--output", "json"]
    env = {**os.environ, "PYTHONPATH": str(python_path)}
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    answer: list[dict[str, Any]] = json.loads(done.stdout)
    return Path(done.stderr.splitlines()[0]), answer


def test_it_holds_every_data_file_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = REPOSITORY / "mm2mgr"
    expected = {f"mm2mgr/templates/{path.name}" for path in (REPOSITORY / "templates").glob("*.j2")}
    assert expected
    expected |= {
        path.relative_to(REPOSITORY).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.suffix in {".py", *DATA_SUFFIXES}
    }
    assert expected <= names
    others = {name for name in names - expected if ".dist-info/" not in name}
    assert others <= {"mm2mgr/py.typed"}


def test_it_carries_its_licence(wheel: Path) -> None:
    assert [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/licenses/LICENSE")]


def test_it_renders_the_estate_as_the_source_tree_does(unpacked: Path, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "clusters", tmp_path / "clusters")
    ran, from_wheel = render(unpacked, tmp_path)
    assert ran.is_relative_to(unpacked)
    ran, from_source = render(REPOSITORY, tmp_path)
    assert ran.is_relative_to(REPOSITORY)
    assert from_wheel
    assert from_wheel == from_source


def test_its_metadata_is_what_an_index_shows(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = email.message_from_string(archive.read(name).decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().strip() == (REPOSITORY / "README.md").read_text().strip()
    assert metadata["Keywords"]
    pythons = re.findall(r"Python :: (3\.\d+)$", "\n".join(metadata.get_all("Classifier", [])), re.MULTILINE)
    assert pythons == ["3.11", "3.12", "3.13"]


def test_the_address_of_the_repository_becomes_its_project_urls(wheel: Path, tmp_path: Path) -> None:
    def project_urls(built: Path) -> list[str]:
        with zipfile.ZipFile(built) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            return email.message_from_bytes(archive.read(name)).get_all("Project-URL", [])

    assert project_urls(wheel) == []
    address = "https://git.example.net/streaming/mm2mgr"
    urls = dict(line.split(", ") for line in project_urls(built_wheel(tmp_path, MM2MGR_PROJECT_URL=f"{address}/")))
    assert urls["Homepage"] == address
    paths = [url.removeprefix(f"{address}/blob/HEAD/") for url in urls.values() if "/blob/HEAD/" in url]
    assert paths
    assert [path for path in paths if not (REPOSITORY / path).is_file()] == []


@pytest.mark.parametrize("address", ["git@git.example.net:streaming/mm2mgr", "https://jane:secret@git.example.net/m"])
def test_an_address_that_would_mislead_or_tell_a_secret_builds_no_wheel(address: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="MM2MGR_PROJECT_URL") as refused:
        built_wheel(tmp_path, MM2MGR_PROJECT_URL=address)
    assert "secret" not in str(refused.value)


def test_the_source_archive_holds_every_file_that_git_does(tmp_path: Path) -> None:
    listing = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("not a git checkout")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(tmp_path)]
    done = subprocess.run(build, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = tmp_path.glob("mm2mgr-*.tar.gz")
    with tarfile.open(built) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    tracked = {path for path in listing.stdout.split("\n") if path and (REPOSITORY / path).is_file()}
    assert tracked - held == set()
