"""What `describe` shows of settings that are written: the text of the tree, with its line, for every kind of value."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, BeforeValidator

from mm2mgr.expand import expand
from mm2mgr.problems.health import flow_settings
from mm2mgr.spec.files import load, yaml_text
from mm2mgr.spec.models import FlowSettings
from mm2mgr.spec.scalars import byte_size, bytes_per_second, duration_seconds, share, timeout_seconds
from tests.spec.trees import write

SPELLINGS: dict[object, str] = {
    duration_seconds: "120min",
    timeout_seconds: "5min",
    bytes_per_second: "500 kB/s",
    byte_size: "4 GiB",
    share: "2%",
}
"""A text of each kind of value with a unit, by its reader; none is what its number looks like."""
HEAD = """\
owner: t
clusters: {a: {bootstrap_servers: ['a:1']}, b: {bootstrap_servers: ['b:1']}}
connect: {w: {url: 'http://w:8083', kafka: b}}
"""


def with_units(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of every setting with a unit below a model, and a text for it."""
    for name, field in model.model_fields.items():
        here = (*path, field.alias or name)
        for part in parts_of(field.annotation, field.metadata):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from with_units(part, here)
            elif isinstance(part, BeforeValidator) and part.func in SPELLINGS:
                yield here, SPELLINGS[part.func]


def parts_of(annotation: Any, metadata: Any = ()) -> list[Any]:
    """Return a type, those of its alternatives, and what is said of them; keys and items of collections are no path."""
    inner = getattr(annotation, "__args__", ()) if getattr(annotation, "__origin__", None) not in (list, dict) else ()
    more = [part for one in inner for part in parts_of(one, getattr(one, "__metadata__", ()))]
    return list(dict.fromkeys([annotation, *metadata, *more] if isinstance(annotation, type) else [*metadata, *more]))


WRITTEN = dict(with_units(FlowSettings))


def nested(values: dict[tuple[str, ...], object]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in values.items():
        node = tree
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = value
    return tree


def shown(folder: Path, flow: dict[str, Any], **more: Any) -> dict[str, tuple[str, str]]:
    """Return the settings of the only flow, of its first connector: text and origin by name."""
    flow = {"sources": ["a"], "targets": ["b"], "topics": {"include": ["t"]}, **flow}
    source = write(folder, x=HEAD + yaml_text({"flows": {"f": flow}, **more}))
    first = expand(load([source])).flows[0]
    return {name: (value, origin) for name, value, origin in flow_settings(first)}


def test_every_setting_with_a_unit_is_known_here() -> None:
    assert {path[0] for path in WRITTEN} == {
        *(
            "audit",
            "balance",
            "catch_up",
            "checkpoints",
            "failover",
            "heartbeats",
            "max_lag",
            "refresh_interval",
            "tasks",
        )
    }
    assert len(WRITTEN) >= 13


@pytest.mark.parametrize("path", WRITTEN, ids=".".join)
def test_a_setting_with_a_unit_is_shown_as_it_is_written(tmp_path: Path, path: tuple[str, ...]) -> None:
    value, origin = shown(tmp_path, nested({path: WRITTEN[path]}))[".".join(path)]
    assert value == WRITTEN[path]
    where = origin.removeprefix("spec ").rpartition(":")
    assert path[-1] in Path(where[0]).read_text(encoding="utf-8").splitlines()[int(where[2]) - 1]


@pytest.mark.parametrize(
    ("flow", "name", "text"),
    [
        ({"start": {"group": "old"}}, "start.group", "old"),
        ({"start": "2026-11-26T10:00"}, "start", "2026-11-26T10:00"),
        ({"start": "2h"}, "start", "2h"),
        ({"balance": {"windows": ["22-5", "12-13"]}}, "balance.windows", "22-5, 12-13"),
        ({"balance": {"windows": "22-5"}}, "balance.windows", "22-5"),
        ({"tasks": {"off_peak": "22-5"}}, "tasks.off_peak", "22-5"),
        ({"tasks": {"threshold": 0.5}}, "tasks.threshold", "0.5"),
        ({"failover": True}, "failover.enabled", "true"),
        ({"source_consumer": {"fetch.min.bytes": None}}, "source_consumer.fetch.min.bytes", "null"),
        ({"refresh_interval": "90s"}, "refresh_interval", "90s"),
    ],
)
def test_other_settings_are_shown_as_they_are_written(
    tmp_path: Path, flow: dict[str, Any], name: str, text: str
) -> None:
    assert shown(tmp_path, flow)[name][0] == text


def test_the_nearest_text_counts_and_what_it_replaces_is_gone(tmp_path: Path) -> None:
    defaults = {"flows": {"start": {"group": "old"}, "tasks": {"capacity": "1 MB/s", "default_rate": "1 kB/s"}}}
    settings = shown(tmp_path, {"start": "latest", "tasks": {"capacity": "2 MB/s"}}, defaults=defaults)
    assert (settings["start"][0], settings["tasks.capacity"][0]) == ("latest", "2 MB/s")
    assert settings["tasks.default_rate"][0] == "1 kB/s"
    assert "start.group" not in settings


def test_a_lane_and_a_link_have_their_own_texts(tmp_path: Path) -> None:
    tasks = {"tasks": {"capacity": "2 MB/s"}, "topics": ["u"]}
    flow = {"balance": {"lanes": {"l": tasks}}, "tasks": {"capacity": "1 MB/s", "cool_down": "36h"}}
    link = {"between": ["a", "b"], "rtt": "80ms", "catch_up": {"limit": "20 MB/s"}}
    flow = {"sources": ["a"], "targets": ["b"], "topics": {"include": ["t", "u"]}, **flow}
    source = write(tmp_path, x=HEAD + yaml_text({"flows": {"f": flow}, "links": [link]}))
    rest, lane = ({name: text for name, text, _ in flow_settings(each)} for each in expand(load([source])).flows)
    names = ("tasks.capacity", "tasks.cool_down", "link.catch_up.limit", "topics.include")
    assert [rest[name] for name in names] == ["1 MB/s", "36h", "20 MB/s", "t"]
    assert [lane[name] for name in names] == ["2 MB/s", "36h", "20 MB/s", "u"]
