"""`mm2mgr rules` as a command; tests/serve/test_rules.py has what it prints."""

from __future__ import annotations

import json

import yaml

from .command import Command
from .load import declare


def test_the_rules_and_the_dashboard_are_printed_without_a_cluster(mm2mgr: Command) -> None:
    declare(mm2mgr.tree, "127.0.0.1:1", "127.0.0.1:2")
    before = mm2mgr.files()
    rules = yaml.safe_load(mm2mgr("rules").out)["groups"][0]["rules"]
    assert {"MirrorTaskFailed", "MirrorRecordsLost", "MirrorServeDown"} <= {rule["alert"] for rule in rules}
    assert json.loads(mm2mgr("rules", "--dashboard").out)["panels"]
    assert yaml.safe_load(mm2mgr("rules", "--kubernetes").out)["kind"] == "PrometheusRule"
    assert yaml.safe_load(mm2mgr("rules", "--dashboard", "--kubernetes").out)["kind"] == "ConfigMap"
    served = yaml.safe_load(mm2mgr("rules", "--runbooks", "https://wiki.example.net/red").out)["groups"][0]["rules"]
    assert {"https://wiki.example.net/red#task-failed"} <= {rule["annotations"]["runbook_url"] for rule in served}
    assert "--runbooks: 'red' is no address" in mm2mgr("rules", "--runbooks", "red", code=64).err
    assert mm2mgr.files() == before
