"""The pipelines of docs/how-to/ci-pipelines.md: whole YAML, shell that parses, and their mm2mgr lines played in order against fakes."""

from __future__ import annotations

import re
import shlex
import subprocess
from typing import Any

import pytest
import yaml

from tests.cli.command import Command
from tests.cli.conftest import mm2mgr, site
from tests.docs.test_documents import DOCUMENTS, blocks
from tests.plan.site import Site

__all__ = ["mm2mgr", "site"]

GITHUB, GITLAB = (
    yaml.safe_load(text) for kind, text in blocks(DOCUMENTS["docs/how-to/ci-pipelines.md"]) if kind == "yaml"
)


def scripts() -> dict[str, list[str]]:
    """Return the shell lines of each job, by pipeline and job."""
    found = {
        f"github {name}": [step["run"] for step in job["steps"] if "run" in step]
        for name, job in GITHUB["jobs"].items()
    }
    jobs = {name: job for name, job in GITLAB.items() if name not in {"stages", "default"}}
    return found | {f"gitlab {name}": job["script"] + job.get("after_script", []) for name, job in jobs.items()}


SCRIPTS = scripts()


def lines_of(job: str) -> list[list[str]]:
    """Return the mm2mgr calls of a job; what the shell would fill in is a word."""
    lines = [line for script in SCRIPTS[job] for line in script.splitlines() if line.startswith("mm2mgr ")]
    return [shlex.split(re.sub(r"\$\w+", "x", line).partition(" > ")[0])[1:] for line in lines]


def test_the_pipelines_have_the_jobs_that_the_page_promises() -> None:
    for pipeline in ("github", "gitlab"):
        first = {lines_of(f"{pipeline} {job}")[0][0] for job in ("lint", "plan", "apply", "drift")}
        assert first == {"lint", "plan", "apply", "drift"}
    for job in GITHUB["jobs"].values():
        assert job["runs-on"]
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    assert {job["stage"] for name, job in GITLAB.items() if "script" in job} <= set(GITLAB["stages"])


@pytest.mark.parametrize("job", SCRIPTS)
def test_the_shell_of_a_job_parses(job: str) -> None:
    for script in SCRIPTS[job]:
        done = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_forks_get_no_plan_and_applies_do_not_overlap() -> None:
    assert "head.repo.full_name == github.repository" in GITHUB["jobs"]["plan"]["if"]
    for job in ("apply", "apply-anew"):
        assert GITHUB["jobs"][job]["concurrency"] == {"group": "mirrors", "cancel-in-progress": False}
    assert (GITLAB["apply"]["resource_group"], GITLAB["apply"]["interruptible"]) == ("mirrors", False)


@pytest.mark.parametrize("pipeline", ["github", "gitlab"])
def test_a_change_goes_through_the_jobs(mm2mgr: Command, site: Site, pipeline: str) -> None:
    def play(job: str, code: int = 0) -> Any:
        (line,) = lines_of(f"{pipeline} {job}")
        return mm2mgr(*line, code=code)

    play("lint")
    comment = play("plan").out
    assert "mm2.a.east.source.orders" in comment
    assert site.east.writes == []
    play("apply")
    assert "mm2.a.east.source.orders" in site.east.connectors
    assert (mm2mgr.folder / "events.jsonl").read_text().count("\n") > 1
    play("drift")
    site.east.connectors["mm2.a.east.source.orders"].config["topics"] = "orders,by-hand"
    assert "mm2.a.east.source.orders" in play("drift", code=2).out
    play("apply", code=1)  # the reviewed plan does not fit any more
    assert site.east.connectors["mm2.a.east.source.orders"].config["topics"] == "orders,by-hand"


def test_an_apply_by_hand_needs_no_plan_file_and_is_bounded(mm2mgr: Command, site: Site) -> None:
    (line,) = lines_of("github apply-anew")
    flow = "  f{0}: {{sources: [a], targets: [east], topics: {{include: [t{0}]}}}}\n"
    site.declare("flows:\n" + "".join(map(flow.format, range(21))))
    said = mm2mgr(*line, code=1)
    assert "--max-changes" in said.out, said.out
    assert site.east.writes == []
    site.declare()
    mm2mgr(*line)
    assert "mm2.a.east.source.orders" in site.east.connectors
