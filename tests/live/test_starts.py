"""Where a flow begins, on workers that cannot create a connector STOPPED; on the newest ones in `test_verbs`."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.sandbox.runtime import kafka_runtime

from .command import Tree
from .pair import serving_pair
from .starts import begin_where_it_is_said

pytestmark = [pytest.mark.live, pytest.mark.matrix]


@pytest.mark.parametrize("version", ["3.6.2"])
def test_a_flow_begins_where_it_is_said(tmp_path: Path, tree: Tree, version: str) -> None:
    with serving_pair(tmp_path / "kafka", kafka_runtime(version), workers=("first",)) as pair:
        begin_where_it_is_said(pair, tree)
