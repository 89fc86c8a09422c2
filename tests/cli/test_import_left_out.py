"""A connector that an import leaves out is told once in text, and with each of its keys as JSON."""

from __future__ import annotations

import json

from .command import Command
from .test_import_running import mirror


def test_the_reason_of_a_connector_left_out_is_told_once(mm2mgr: Command) -> None:
    dump = [{"name": name, "config": mirror(source, "a")} for name, source in (("blank", ""), ("well", "mill"))]
    (mm2mgr.folder / "east.json").write_text(json.dumps(dump, indent=1))
    for option in ((), ("--all",)):
        text = mm2mgr("import", "east.json", *option, code=3).out
        assert text.count("its source.cluster.alias is blank") == 1
        assert "blank is left out (9 keys): its source.cluster.alias is blank" in text
    rows = mm2mgr("import", "east.json", "-o", "json", code=3).json["rows"]
    assert sum("blank is left out" in row["reason"] for row in rows) == 9
