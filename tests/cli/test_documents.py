"""The JSON of every command as text: keys, their order and what they hold. `UPDATE_DOCUMENTS=1` writes it anew, for a person to read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.cli import main
from mm2mgr.kafka.access import KafkaAccess

from .command import Command
from .load import ORDERS, ORDERS_SOURCE, measured, one_flow

FOLDER = Path(__file__).parent / "documents"
UPDATE = "UPDATE_DOCUMENTS"
# What another run, machine or moment would change.
VARIES = {
    r'"[^"\n]*127\.0\.0\.1:\d+[^"\n]*"': '"ADDRESS"',
    r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?(\.\d+)?(Z|\+00:00)?": "TIME",
    r"\b\d{10,}(\.\d+)?\b": "0",
    r"\b\d+\.\d+(e-?\d+)?": "0.0",
    r'("(?:seconds|\w+_seconds)": )\d+\b': r"\g<1>0",
    r"\b[\d.]+ (ms|s|min)\b": "SOME TIME",
    r'"[^"\n]* [^"\n]{30,}"(?!:)': '"A SENTENCE"',
}
READS = (
    *("render", "lint", "explain acks", "explain dead-key", "explain KAFKA-12468"),
    *(
        "plan",
        "plan --prune",
        "status",
        f"describe {ORDERS}",
        "lag",
        "lag --by partition",
        "losses",
        "check --timeout 1",
    ),
    *(
        "size --dry-run --store result",
        "fleet --store result",
        "simulate --traffic 2 --store result",
        "drift",
        "history",
    ),
    *(f"link explain {ORDERS}", "who orders", f"topics {ORDERS} --all", f"offsets show {ORDERS}"),
)
WRITES = (
    *("apply --yes --wait 0", f"pause {ORDERS} --wait 0", f"stop {ORDERS} --wait 5"),
    *(f"offsets reset {ORDERS} --to 0 --yes", f"resume {ORDERS} --wait 0", f"restart {ORDERS} --wait 0"),
    *("reconcile --once --wait 0", "watch --once --dry-run --first-wait 0s"),
)


@pytest.fixture
def mirrored(mm2mgr: Command, mock_cluster: KafkaAccess, impatient: None) -> Iterator[Command]:
    """One flow that has mirrored six of ten records, with a task that FAILED, a connector that a person changed, and rates."""
    with one_flow(mm2mgr, mock_cluster, produced=10, mirrored=6) as connect:
        connect.connectors[ORDERS_SOURCE].config["tasks.max"] = "9"
        (mm2mgr.tree / "link.yaml").write_text("links: [{between: [a, b], rtt: 80ms, bandwidth: 1Gbit/s}]\n")
        measured(mm2mgr.folder / "result", {("a", "orders", 0): 1_000.0})
        yield mm2mgr


def shortened(value: Any) -> Any:
    """Return JSON with one name of each list of names: a new rule of lint is no other document."""
    if isinstance(value, dict):
        return {key: shortened(below) for key, below in value.items()}
    if isinstance(value, list):
        return value[:1] if all(isinstance(below, str) for below in value) else [shortened(below) for below in value]
    return value


def document(mm2mgr: Command, command: str) -> str:
    """Return what a command prints as JSON, without what varies."""
    mm2mgr.monkeypatch.setattr("sys.argv", ["mm2mgr", *command.split(), "-o", "json"])
    mm2mgr.capsys.readouterr()
    with pytest.raises(SystemExit):
        main()
    out, err = mm2mgr.capsys.readouterr()
    assert out, err
    lines = [json.loads(line) for line in out.splitlines()] if out[1:2] == '"' else json.loads(out)
    text = json.dumps(shortened(lines), indent=1)
    for pattern, instead in VARIES.items():
        text = re.sub(pattern, instead, text)
    return text.replace(str(mm2mgr.folder), "FOLDER")


@pytest.mark.real_time
def test_the_json_of_every_command_keeps_its_keys_and_their_order(mirrored: Command) -> None:
    wrong = []
    for command in (*READS, *WRITES):
        file = FOLDER / f"{re.sub(r'[^a-z0-9]+', '-', command.lower())}.json"
        found = document(mirrored, command)
        if os.environ.get(UPDATE):
            FOLDER.mkdir(exist_ok=True)
            file.write_text(found, encoding="utf-8")
        if not file.exists() or file.read_text(encoding="utf-8") != found:
            wrong.append(command)
    assert wrong == [], f"see what changed: {UPDATE}=1, then git diff"
