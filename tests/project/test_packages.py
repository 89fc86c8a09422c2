"""Holds what people install mm2mgr with: image, GitHub action, GitLab job, pre-commit hook, systemd units."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema

from mm2mgr import __version__
from tests.docs.test_documents import command_of, unknown_calls
from tests.project.test_kubernetes import PODS, USER, kustomization

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
HADOLINT = Path(sys.executable).with_name("hadolint")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def instructions() -> Iterator[tuple[str, str]]:
    """Yield instruction and arguments of the Dockerfile, in order."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        yield word, rest.strip()


def stages() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage of the Dockerfile."""
    parts: list[list[tuple[str, str]]] = []
    for word, rest in instructions():
        if word == "FROM":
            parts.append([])
        if parts:
            parts[-1].append((word, rest))
    return parts


# --- the image --------------------------------------------------------------------------------------------------------


def test_the_dockerfile_breaks_no_rule_of_hadolint(tmp_path: Path) -> None:
    done = subprocess.run([HADOLINT, DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    worse = tmp_path / "Dockerfile"
    worse.write_text("FROM python:latest\nRUN pip install mm2mgr\n")
    found = subprocess.run([HADOLINT, worse], capture_output=True, text=True, check=False)
    assert {"DL3007", "DL3013"} <= set(re.findall(r"DL\d+", found.stdout))


def test_the_image_runs_as_a_number_and_has_no_installer() -> None:
    build, final = stages()
    assert [rest for word, rest in final if word == "USER"] == [f"{USER}:{USER}"]
    after = [word for word, _ in final[[word for word, _ in final].index("USER") :]]
    assert not {"RUN", "COPY", "ADD"} & set(after)
    assert {rest.split()[0] for word, rest in final if word == "COPY"} == {"--from=build"}
    (run,) = [rest for word, rest in final if word == "RUN"]
    assert re.search(r"pip .*uninstall --yes .*pip", run)
    assert "--without-pip" in dict(build)["RUN"]
    base = dict(instructions())["ARG"], next(rest for word, rest in instructions() if word == "ARG")
    assert re.fullmatch(r"BASE=python:3\.\d+-slim-[a-z]+", base[1]), "a version, never latest"


def test_image_and_manifests_agree_on_version_port_and_folders() -> None:
    final = stages()[1]
    assert ("ARG", f"VERSION={__version__}") in final
    assert {image["newTag"] for image in kustomization()["images"]} == {__version__}
    compose = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]["mm2mgr"]
    assert compose["image"] == f"mm2mgr:{__version__}"
    (port,) = PODS["Deployment/mm2mgr-page"]["containers"][0]["ports"]
    assert ("EXPOSE", str(port["containerPort"])) in final
    assert ("WORKDIR", "/data") in final
    (environment,) = [rest for word, rest in final if word == "ENV"]
    assert "MM2MGR_STATE=/data/state" in environment
    assert "MM2MGR_CACHE=/tmp/mm2mgr" in environment


def test_what_the_image_is_built_from_exists_and_is_not_ignored() -> None:
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    admitted = [line[1:] for line in lines if line.startswith("!")]
    sources = {source for word, rest in stages()[0] if word == "COPY" for source in rest.split()[:-1]}
    assert sources == set(admitted)
    assert all((REPOSITORY / source).exists() for source in sources)
    # The build backend reads these, too, and nothing else of the repository.
    assert {"pyproject.toml", "README.md", "LICENSE", "templates", "mm2mgr"} <= sources


def test_the_versions_of_the_image_are_those_that_ci_tests() -> None:
    run = dict(stages()[0])["RUN"]
    (sed,) = re.findall(r"(sed .*?) requirements\.lock >", run)
    lock = REPOSITORY / ".ci" / "requirements.lock"
    lines = subprocess.run([*shlex.split(sed), lock], capture_output=True, text=True, check=True).stdout.splitlines()
    pinned = [line for line in lines if not line.startswith("#")]
    assert len(pinned) > 30
    assert [line for line in pinned if not re.fullmatch(r"[a-z0-9_.-]+==\S+( ; .+)?", line)] == []


# --- pipelines and hooks ----------------------------------------------------------------------------------------------

SCHEMAS = {
    "docker-compose.yml": "compose-spec",
    "deploy/github-action/action.yml": "github-actions",
    "deploy/gitlab/lint.yml": "gitlab-ci",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_file_for_another_program_is_what_its_schema_says(name: str) -> None:
    schema: Any = get_builtin_schema(f"vendor.{SCHEMAS[name]}")
    validator = jsonschema.validators.validator_for(schema)(schema)
    document = yaml.safe_load((REPOSITORY / name).read_text())
    assert [error.message for error in validator.iter_errors(document)] == []


def scripts() -> dict[str, str]:
    action = yaml.safe_load((DEPLOY / "github-action" / "action.yml").read_text())
    (job,) = yaml.safe_load((DEPLOY / "gitlab" / "lint.yml").read_text()).values()
    (hook,) = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    return {
        "action": "\n".join(step["run"] for step in action["runs"]["steps"] if "run" in step),
        "job": "\n".join([*job["before_script"], *job["script"]]),
        "hook": hook["entry"],
    }


@pytest.mark.parametrize("name", scripts())
def test_a_pipeline_calls_lint_with_options_that_exist(name: str) -> None:
    script = scripts()[name]
    assert subprocess.run(["bash", "-n", "-c", script], check=False).returncode == 0
    assert unknown_calls(f"```sh\n{script}\n```") == []
    (call,) = re.findall(r"^mm2mgr (.*)", script, re.MULTILINE)
    assert command_of(shlex.split(call.partition(" > ")[0]))[0] == "lint"
    assert "${{" not in script, "an input inside a script would be read as shell"


@pytest.mark.parametrize("pages", ["", "https://git.example.net/mm2mgr/docs/reference/rules"])
def test_the_log_of_the_action_links_to_the_pages_of_rules_where_it_is_told_them(pages: str, tmp_path: Path) -> None:
    (tmp_path / "mm2mgr").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m mm2mgr "$@"\n')
    (tmp_path / "mm2mgr").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    inputs = {"MM2MGR_CLUSTERS": "clusters", "FAIL_ON": "error", "SARIF": str(tmp_path / "log"), "RULE_PAGES": pages}
    action = yaml.safe_load((DEPLOY / "github-action" / "action.yml").read_text())
    assert set(inputs) == set(action["runs"]["steps"][-1]["env"])
    command = ["bash", "-ec", action["runs"]["steps"][-1]["run"]]
    done = subprocess.run(command, cwd=REPOSITORY, env={**os.environ, **inputs, "PATH": path}, check=False)
    assert done.returncode == 0
    (run,) = json.loads((tmp_path / "log").read_text())["runs"]
    assert run["tool"]["driver"].get("informationUri", "").startswith(pages)
    assert ("informationUri" in run["tool"]["driver"]) is bool(pages)


def test_the_action_installs_the_repository_that_it_is_in() -> None:
    assert (DEPLOY / "github-action" / ".." / ".." / "pyproject.toml").resolve() == REPOSITORY / "pyproject.toml"
    assert '"$ACTION/../.."' in scripts()["action"]


def test_the_hook_runs_for_files_of_a_tree_and_lints_all_of_it() -> None:
    (hook,) = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    assert (hook["language"], hook["pass_filenames"]) == ("python", False)
    assert re.search(hook["files"], "clusters/flows/orders.yaml")
    assert not re.search(hook["files"], "docs/clusters.md")


# --- systemd ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS, ids=[unit.stem for unit in UNITS])
def test_a_unit_starts_a_command_that_exists_and_writes_where_it_may(unit: Path) -> None:
    text = unit.read_text()
    (start,) = re.findall(r"^ExecStart=/opt/mm2mgr/bin/(mm2mgr .*)", text, re.MULTILINE)
    assert unknown_calls(f"`{start}`") == []
    for line in ("ProtectSystem=strict", "NoNewPrivileges=yes", "StateDirectory=mm2mgr", "User=mm2mgr"):
        assert line in text.splitlines()
    assert "MM2MGR_STATE=/var/lib/mm2mgr/state" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    copies = [tmp_path / unit.name for unit in UNITS]
    for unit, copy in zip(UNITS, copies, strict=True):
        copy.write_text(unit.read_text().replace("/opt/mm2mgr/bin/mm2mgr", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", *copies], capture_output=True, text=True, check=False)
    mine = [line for line in (done.stdout + done.stderr).splitlines() if fnmatch(line, "*mm2mgr-*")]
    assert mine == []
