"""workers: of a Connect cluster: units, defaults, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.errors import SpecError
from mm2mgr.expand import expand
from mm2mgr.spec.files import load
from mm2mgr.spec.models import Workers
from mm2mgr.spec.scalars import byte_size
from tests.spec.trees import write

TREE = """\
owner: team
clusters: {{hub: {{bootstrap_servers: ["h:9092"]}}}}
defaults: {{connect: {{workers: {{tasks_per_worker: 4, memory: 8 GiB}}}}}}
connect:
  one: {{url: "http://one:8083", kafka: hub}}
  two: {{url: "http://two:8083", kafka: hub, workers: {own}}}
"""


def workers(folder: Path, own: str) -> dict[str, Workers]:
    topology = expand(load([write(folder, x=TREE.format(own=own))]))
    return {name: connect.model.workers for name, connect in topology.connects.items()}


def test_own_workers_replace_the_shared_ones_as_a_whole(tmp_path: Path) -> None:
    found = workers(tmp_path, "{count: 3, network: 1Gbit/s}")
    assert found["one"] == Workers(tasks_per_worker=4, memory="8 GiB")  # type: ignore[arg-type]  # as people write it
    assert (found["two"].count, found["two"].tasks_per_worker, found["two"].memory) == (3, 10, None)
    assert found["two"].network == 125e6


@pytest.mark.parametrize(("text", "size"), [("512 MiB", 2.0**29), ("4GiB", 2.0**32), ("8 GB", 8e9), ("100 kB", 1e5)])
def test_sizes(text: str, size: float) -> None:
    assert byte_size(text) == size


@pytest.mark.parametrize(
    "own", ["{memory: 4}", "{memory: 4 GiB/s}", "{memory: 1 Gbit}", "{memory: 0 B}", "{count: 0}", "{cores: 4}"]
)
def test_what_is_none_is_refused_with_its_line(tmp_path: Path, own: str) -> None:
    with pytest.raises(SpecError, match=r"x\.yaml:6:"):
        workers(tmp_path, own)
