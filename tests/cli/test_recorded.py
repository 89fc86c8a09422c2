"""What commands say of real clusters, from recorded answers of each Kafka version. `UPDATE_DOCUMENTS=1` writes it anew, for a person to read."""

from __future__ import annotations

import os
import re
import shutil

import pytest

from .command import Command
from .load import measured
from .recorded import FOLDER, TREE, VERSIONS
from .test_documents import UPDATE

# With how each ends.
COMMANDS = {
    **{"plan": 0, "plan --prune": 0, "status": 1, "describe orders:src->tgt": 0, "lag": 0, "lag --by partition": 0},
    **{"who orders": 0, "topics orders:src->tgt --all": 0, "drift": 0, "lint --connect pair": 1},
    **{"check": 0, "size --dry-run --store store": 0, "fleet --store store": 0},
}


@pytest.mark.parametrize("version", VERSIONS)
def test_commands_say_of_recorded_clusters_what_a_person_has_read(version: str, mm2mgr: Command) -> None:
    recorded, words = FOLDER / f"kafka-{version}.json", FOLDER / f"kafka-{version}.txt"
    mm2mgr.tree.mkdir()
    shutil.copy(TREE, mm2mgr.tree / "tree.yaml")
    measured(mm2mgr.folder / "store", {("src", "orders", 0): 2e6})
    parts = []
    for command, code in COMMANDS.items():
        shutil.rmtree(mm2mgr.folder.parent / "state", ignore_errors=True)
        ended = mm2mgr(*command.split(), "--snapshot", recorded, code=code)
        out = re.sub(r"(?m)^Checked in [0-9.]+ s", "Checked in 0.0 s", ended.out)  # of a busy machine, too
        parts.append(f"$ mm2mgr {command}\n{out}{ended.err}")
    text = "\n".join(parts)
    if UPDATE in os.environ:
        words.write_text(text)
    assert text == words.read_text()
