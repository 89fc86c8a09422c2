"""Placeholders mean here what they mean to a Kafka client, except that a missing value is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.errors import KafkaError
from mm2mgr.files import Unreadable
from mm2mgr.kafka.access import resolve


def test_each_provider_resolves_also_inside_a_longer_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST", "h")
    properties = tmp_path / "secrets.properties"
    properties.write_text("user = alice\npassword: s p\\u0061ce\\n\n")
    (tmp_path / "ca.pem").write_text("-----BEGIN\n")
    text = f'u="${{file:{properties}:user}}" p="${{file:{properties}:password}}" e=${{env:HOST}} c=${{dir:{tmp_path}:ca.pem}}'
    assert resolve("dc1", text) == 'u="alice" p="s pace\n" e=h c=-----BEGIN\n'


def test_a_resolved_value_is_not_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "${env:B}")
    monkeypatch.setenv("B", "no")
    assert resolve("dc1", "${env:A}") == "${env:B}"


@pytest.mark.parametrize(
    "placeholder",
    [
        "${env:NOT_SET}",
        "${vault:path:key}",
        "${env:path:KEY}",
        "${dir:DIR:absent}",
        "${dir:DIR:../x}",
        "${file:DIR/p:no}",
    ],
)
def test_what_has_no_value_is_named_with_a_hint(
    tmp_path: Path, placeholder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "value")
    (tmp_path / "p").write_text("password=hunter2\n")
    (tmp_path.parent / "x").write_text("outside")
    text = placeholder.replace("DIR", str(tmp_path))
    with pytest.raises(KafkaError) as caught:
        resolve("dc1-logging", f"before {text} after")
    assert caught.value.message.startswith(f"dc1-logging: {text}")
    assert "access:" in str(caught.value.hint)
    assert "hunter2" not in caught.value.message


def test_an_unreadable_file_is_named_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match="cannot be read: no such file") as caught:
        resolve("dc1", f"${{file:{tmp_path}/none.properties:key}}")
    assert isinstance(caught.value.__cause__, Unreadable)


def test_text_without_placeholders_is_left_alone() -> None:
    assert resolve("dc1", "$1 {env:X} ${nocolon}") == "$1 {env:X} ${nocolon}"
