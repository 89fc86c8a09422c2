"""A tree that is rendered, imported and rendered again has the same connectors, key for key."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given

from mm2mgr.imports.tree import ImportOptions, import_tree
from tests.examples import draw_examples
from tests.imports.random_trees import as_files, rendered, trees


@draw_examples(6, many=10_000)
@given(values=trees())
def test_the_connectors_of_an_imported_tree_are_those_that_were_imported(values: dict[str, Any]) -> None:
    connectors = rendered(values)
    assume(connectors)
    assert connectors
    imported = import_tree(as_files(connectors), ImportOptions(owner="team"))
    before = {(connector.connect, connector.name): dict(connector.config) for connector in connectors}
    after = {(connector.connect, connector.name): dict(connector.config) for connector in imported.connectors}
    assert after == before
    assert imported.report.left_out == ()
    assert imported.report.decisions == 0
