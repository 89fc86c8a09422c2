from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mm2mgr.connect.errors import ConnectError, WrongBody
from mm2mgr.connect.target import BasicAuth, BearerAuth, ConnectTarget, TlsFiles
from mm2mgr.connect.types import (
    Plugin,
    SourceOffset,
    Validation,
    WorkerInfo,
    parse_connector,
    parse_state,
    parse_status,
    parse_task,
)
from mm2mgr.connectors import RunningConnector, TaskConfig

PARSERS = (
    *(parse_connector, parse_state, parse_status, parse_task),
    *(Plugin.parse, SourceOffset.parse, Validation.parse, WorkerInfo.parse),
)


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("body", [None, [], "text", 3, {}, {"name": 1}, {"id": "x"}, {"connector": []}])
def test_any_other_shape_is_a_wrong_body(parse: Callable[[object], Any], body: object) -> None:
    with pytest.raises(WrongBody, match="expected"):
        parse(body)


def test_unknown_fields_and_missing_optional_ones_are_fine() -> None:
    status = parse_status(
        {
            "name": "a",
            "connector": {"state": "RUNNING", "worker_id": "w", "version": "4.3.1"},
            "tasks": [{"id": 0, "state": "FAILED", "trace": "boom", "new": 1}],
            "type": "source",
            "new": {},
        }
    )
    assert (status.state, status.tasks[0].trace, status.trace) == ("RUNNING", "boom", None)
    info = parse_connector({"name": "a", "config": {"k": "v", "n": None, "b": True}, "type": None})
    assert info == RunningConnector("a", {"k": "v", "b": "true"}, (), "unknown")


def test_validation_keeps_only_the_refused_keys() -> None:
    refused = {"definition": None, "value": {"name": "k", "value": "v", "errors": ["no"]}}
    fine = {"definition": {}, "value": {"name": "l", "errors": []}}
    assert Validation.parse({"name": "c", "error_count": 1, "configs": [refused, fine]}).errors == {"k": ("no",)}


def test_secrets_are_in_no_repr() -> None:
    config = {"sasl.jaas.config": "hunter2"}
    values = [
        RunningConnector("a", config),
        TaskConfig(0, config),
        BasicAuth("u", "hunter2"),
        BearerAuth("hunter2"),
        ConnectTarget("e", ("http://h",), BasicAuth("u", "hunter2"), TlsFiles(key_password="hunter2")),
    ]
    assert "hunter2" not in repr(values)


@pytest.mark.parametrize("make", [lambda: BearerAuth("hunter2\nx"), lambda: BearerAuth(" ")])
def test_a_token_no_header_can_carry_is_refused_without_showing_it(make: Callable[[], object]) -> None:
    with pytest.raises(ConnectError, match="bearer token") as caught:
        make()
    assert "hunter2" not in str(caught.value)
    assert BearerAuth("good\n").header() == "Bearer good"


@pytest.mark.parametrize(
    "url", ["connect:8083", "ftp://h", "http://", "http://h:port", "https://u:hunter2@h", "http://h/?x=1", "http://[h"]
)
def test_unusable_urls_are_refused_without_showing_them(url: str) -> None:
    with pytest.raises(ConnectError, match="'east' has a URL") as caught:
        ConnectTarget("east", (url,))
    assert "hunter2" not in str(caught.value)
    assert caught.value.hint


def test_a_url_keeps_its_path_and_loses_its_last_slash() -> None:
    assert ConnectTarget("e", ("https://proxy/east/",)).urls == ("https://proxy/east",)
    with pytest.raises(ConnectError, match="no URL"):
        ConnectTarget("e", ())


def test_types_need_no_http_library() -> None:
    script = "import sys, mm2mgr.connect.types, mm2mgr.connect.types; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
