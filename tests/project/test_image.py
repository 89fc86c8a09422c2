"""Builds the container image and runs it as a cluster would: where an engine is, and the base image is at hand.

Nothing is pulled here: `podman pull python:3.13-slim-bookworm` first, or tag a base of your own with that name.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKERFILE = REPOSITORY / "deploy" / "Dockerfile"
ENGINE = next(filter(None, map(shutil.which, (os.environ.get("MM2MGR_ENGINE", "podman"), "docker"))), None)
IMAGE = "mm2mgr:of-the-tests"
# What deploy/kubernetes and docker-compose.yml hold a container to.
HELD = ["--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=none"]
TREE = "owner: tests\nclusters: {a: {bootstrap_servers: ['127.0.0.1:9']}, b: {bootstrap_servers: ['127.0.0.1:8']}}\n"
TREE += "connect: {main: {url: ['http://127.0.0.1:9'], kafka: b}}\n"
TREE += "flows: {orders: {sources: [a], targets: [b], topics: {include: [orders]}}}\n"
ASK = (
    "from http.client import HTTPConnection; page = HTTPConnection('127.0.0.1', 8642, timeout=4);"
    " page.request('GET', '/healthz'); print(page.getresponse().status)"
)

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.skipif(ENGINE is None, reason="the image is not built: neither podman nor docker is installed"),
]


def engine(*arguments: str, deadline: float = 60) -> subprocess.CompletedProcess[str]:
    assert ENGINE is not None
    return subprocess.run([ENGINE, *arguments], capture_output=True, text=True, check=False, timeout=deadline)


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    found = re.search(r"^ARG BASE=(\S+)", DOCKERFILE.read_text(), re.MULTILINE)
    assert found is not None
    if engine("image", "inspect", found[1]).returncode:
        pytest.skip(f"the image is not built: {ENGINE} has no image {found[1]}, and tests pull none")
    built = engine(
        *("build", "--build-arg=EXTRAS=serve", f"--file={DOCKERFILE}", f"--tag={IMAGE}", str(REPOSITORY)), deadline=600
    )
    assert built.returncode == 0, (built.stdout + built.stderr)[-4000:]
    yield IMAGE
    engine("rmi", "--force", IMAGE)


@pytest.fixture
def tree(tmp_path: Path) -> list[str]:
    folder = tmp_path / "clusters"
    folder.mkdir()
    (folder / "estate.yaml").write_text(TREE)
    folder.chmod(0o755)  # the container's user is another
    return [f"--volume={folder}:/tree/clusters:ro", "--env=MM2MGR_CLUSTERS=/tree/clusters"]


def test_it_holds_nothing_but_what_runs(image: str) -> None:
    (about,) = json.loads(engine("image", "inspect", image).stdout)
    assert (about["Config"]["User"], about["Config"]["Entrypoint"]) == ("10001:10001", ["mm2mgr"])
    names = ["(", "-name", "mm2mgr"]
    for name in ("pip", "uv", ".git", ".venv", ".cache", "requirements.lock"):
        names += ["-o", "-name", name]
    command = ["--user=0", "--entrypoint=find", image, "/", "-xdev", *names, ")", "-not", "-path", "/proc/*"]
    paths = engine("run", "--rm", *HELD, *command).stdout.splitlines()
    assert "/opt/mm2mgr/bin/mm2mgr" in paths, "else nothing was looked at"
    assert [path for path in paths if Path(path).name != "mm2mgr"] == [], "installers, caches or sources were left"


def test_it_runs_as_nobody_on_a_root_that_cannot_be_written(image: str, tree: list[str]) -> None:
    script = "id -u; for it in /x /opt/mm2mgr/x /data/x /tmp/x; do touch $it 2> /dev/null && echo $it; done; true"
    told = engine("run", "--rm", *HELD, "--entrypoint=sh", image, "-c", script)
    assert told.stdout.split() == ["10001", "/tmp/x"], told.stderr
    assert engine("run", "--rm", *HELD, image).stdout.startswith("Usage: mm2mgr ")
    linted = engine("run", "--rm", *HELD, *tree, image, "lint")
    assert (linted.returncode, linted.stdout[:11]) == (0, "No findings"), linted.stdout + linted.stderr


def test_the_page_answers_its_probe_and_ends_on_sigterm(image: str, tree: list[str]) -> None:
    name = "mm2mgr-of-the-tests"
    engine("rm", "--force", name)
    begun = engine("run", "--detach", f"--name={name}", *HELD, "--volume=/data", *tree, image, "serve", "--no-auth")
    assert begun.returncode == 0, begun.stderr
    try:
        deadline = time.monotonic() + 60
        while (asked := engine("exec", name, "python", "-c", ASK)).stdout.strip() != "200":
            assert time.monotonic() < deadline, asked.stderr + engine("logs", name).stderr
            time.sleep(0.5)
        changed = engine("diff", name).stdout.split("\n")
        assert [line for line in changed if "/opt" in line or "/usr" in line or "/var" in line] == []
        began = time.monotonic()
        engine("kill", "--signal=TERM", name)
        assert engine("wait", name).stdout.strip() == "0"
        assert time.monotonic() - began < 10
    finally:
        engine("rm", "--force", name)
