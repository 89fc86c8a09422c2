"""The commands that README, tutorial and how-tos show: as a shell gets them, and where each of them is run."""

from __future__ import annotations

import re
from textwrap import dedent

from tests.docs.test_documents import DOCUMENTS, FENCE

# Pages that are walked from their first command to their last, in a folder and a sandbox of their own.
WALKS = ("docs/tutorial.md", "docs/how-to/stress-test.md", "docs/how-to/try-a-setting.md")
PAGES = ("README.md", *(name for name in DOCUMENTS if name == "docs/tutorial.md" or name.startswith("docs/how-to/")))
# What no walk runs, by the beginning of the command, with the reason.
NOT_RUN = {
    "make demo": "a test of its own: tests/demo",
    "make test": "this is it",
    "python3 -m venv": "the tests run in an environment that is installed already; `.ci/run` installs it",
    ".venv/bin/pip": "the same",
    "pip wheel": "builds a wheel: tests/project builds and installs it",
    "pipx": "installs on the machine",
    "uv tool": "installs on the machine",
    "docker": "needs its engine: tests/project/test_image.py and test_compose_up.py",
    "useradd": "changes the machine",
    "install -": "changes the machine",
    "cp deploy/systemd": "changes the machine",
    "systemctl": "changes the machine",
    "kubectl": "no cluster of Kubernetes here: tests/project judges the manifests by their schemas",
    "export AWS_": "no object storage here",
    "mm2mgr sample --follow --interval 1min --keep 90d --store s3:": "no object storage here",
    "mm2mgr throughput --store s3:": "no object storage here",
    "spark-submit": "no standalone cluster of Spark here: tests/throughput/test_submit.py",
    "mm2mgr rules --kubernetes | kubectl": "no cluster of Kubernetes here",
    "mm2mgr sample --from prometheus": "no Prometheus here: tests/samples/test_prometheus.py",
    "mm2mgr audit --compare logging-old": "walked in docs/how-to/try-a-setting.md",
    "mm2mgr failover back 'dc1->agg' --": "begins after a failover, with a way back in the tree: tests/live/test_failback.py",
    "mm2mgr --clusters strange-tree": "the snapshot of another estate: tests/live/test_snapshot.py",
}


def commands_of(page: str) -> list[str]:
    """Return the commands of a page in its order: lines of `sh` and `bash` blocks, and those after `$ ` in `console` blocks."""
    commands = []
    for match in FENCE.finditer(page):
        lines = dedent(match["body"]).replace("\\\n", " ").splitlines()
        if match["kind"] == "console":
            commands += [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        elif match["kind"] in {"sh", "bash"}:
            commands += lines
    return [command for line in commands if (command := re.sub(r"(^|\s+)#\s.*", "", line).strip())]


def why_not_run(command: str) -> str:
    """Return why no walk runs a command, or an empty text."""
    return next((reason for beginning, reason in NOT_RUN.items() if command.startswith(beginning)), "")


# Pages whose commands run on a small estate, those that only read before those that write.
_LATER = (
    "docs/how-to/history.md",
    "docs/how-to/declare.md",
    "docs/how-to/day-two.md",
    "docs/how-to/where-a-flow-begins.md",
    "docs/how-to/keep-topic-names.md",
    "docs/how-to/failover-check.md",
    "docs/how-to/failover-rehearsal.md",
    "docs/how-to/failover-planned.md",
    "docs/how-to/failover-back.md",
    "docs/how-to/failover-disaster.md",
)
_WITH_COMMANDS = [
    name
    for name in PAGES
    if name not in WALKS and any(not why_not_run(command) for command in commands_of(DOCUMENTS[name]))
]
ON_AN_ESTATE = (*(name for name in _WITH_COMMANDS if name not in _LATER), *_LATER)
