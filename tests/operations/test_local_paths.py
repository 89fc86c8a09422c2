"""Texts for readers on other machines name no path of this one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mm2mgr.operations.local_paths import LocalPaths

PATHS = LocalPaths({"/srv/a&b/samples": "the store", "/srv/tree": "tree", "/srv": "the working folder", "/": "no"})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no samples in /srv/a&b/samples.", "no samples in the store."),
        ("'/srv/a&b/samples/throughput/x.parquet' is gone", "'the store/throughput/x.parquet' is gone"),
        ("/srv/tree/flows.yaml:3: wrong", "tree/flows.yaml:3: wrong"),
        ("/srv/trees and /srv-2 and /var/srv", "the working folder/trees and /srv-2 and /var/srv"),
        ("${file:/srv/secrets:key} is on the workers", "${file:/srv/secrets:key} is on the workers"),
    ],
)
def test_what_a_reader_cannot_use_of_a_path_is_left_out(text: str, shown: str) -> None:
    assert PATHS.hide(text) == shown
    assert json.loads(PATHS.hide_in_json(json.dumps(text))) == shown


def test_a_path_is_known_in_html() -> None:
    assert PATHS.hide_in_html("<p>in /srv/a&amp;b/samples</p>") == "<p>in the store</p>"


def test_a_process_knows_its_store_its_tree_and_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MM2MGR_STATE", str(tmp_path / "state"))
    paths = LocalPaths.of_process(Path("samples"), [tmp_path / "clusters", Path("more")], [tmp_path / "freeze", None])
    text = f"{tmp_path}/samples/x samples {tmp_path}/clusters/a.yaml:1 {tmp_path}/state/me.json {tmp_path}/freeze more"
    assert paths.hide(text) == "the store/x samples clusters/a.yaml:1 the state folder/me.json freeze more"
    assert LocalPaths.of_process("s3://bucket/a", ()).hide("s3://bucket/a is gone") == "s3://bucket/a is gone"
