"""Files that are small and mean much, never end, or hold very many of something: a sentence with file and limit, in seconds."""

from __future__ import annotations

import os
from pathlib import Path
from time import process_time

import pytest

from mm2mgr.topics.names import NameFilter, Selection
from mm2mgr.topics.shared import overlaps
from tests.cli.command import Command
from tests.cli.conftest import mm2mgr  # noqa: F401  a fixture
from tests.spec.trees import BASE, FLOW, PYYAML_6_0_4, write

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
QUICK_SECONDS = 15.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr("mm2mgr.files.PIPE_SECONDS", 0.1)
    begun = process_time()
    yield
    assert process_time() - begun < QUICK_SECONDS


def doubled(name: str, first: str, line: str, times: int = 40) -> str:
    return f"x-{name}0: &{name}0 {first}\n" + "".join(
        f"x-{name}{n}: &{name}{n} {line.format(before=f'*{name}{n - 1}')}\n" for n in range(1, times)
    )


BOMBS = {
    "aliases": doubled("a", "[x, x]", "[{before}, {before}]"),
    "aliases of maps": doubled("a", "{k: v}", "{{k: {before}, l: {before}}}"),
    "merge keys": doubled("a", "{k: v, l: w}", "{{<<: [{before}, {before}]}}"),
    "long merge keys": doubled(
        "a", "{" + ", ".join(f"k{n}: v" for n in range(1000)) + "}", "{{<<: {before}, own: v}}", 9000
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_aliases_and_merge_keys_that_expand(mm2mgr: Command, bomb: str) -> None:  # noqa: F811
    write(mm2mgr.tree, x=BASE + BOMBS[bomb] + FLOW)
    said = mm2mgr("render", code=1)
    assert "clusters/x.yaml:" in said.out + said.err
    if bomb == "merge keys" and PYYAML_6_0_4:
        assert "unknown key 'x-a0'" in said.err, "it does not expand, and is judged as any other file"
        return
    assert (
        "the anchors in this file expand to too many values" in said.out + said.err
        or "nested too" in said.err + said.out
    )


def test_merge_keys_as_people_write_them_still_work(mm2mgr: Command) -> None:  # noqa: F811
    tree = BASE.replace("  b: {", "  b: {labels: {<<: [&l {x: y, z: w}, {x: other}], z: own}, ") + FLOW
    write(mm2mgr.tree, x=tree)
    assert "mm2.a.b.source.f" in mm2mgr("render").out


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "/dev/null"])
@pytest.mark.parametrize("how", ["tree", "file", "plan", "worker"])
def test_pipes_and_devices_given_by_hand(mm2mgr: Command, kind: str, how: str) -> None:  # noqa: F811
    path = Path(kind)
    if kind == "pipe":
        path = mm2mgr.folder / "pipe.yaml"
        os.mkfifo(path)
    (mm2mgr.folder / "c.json").write_text("{}", encoding="utf-8")
    arguments = {
        "tree": ["-f", path, "render"],
        "file": ["lint", path],
        "plan": ["apply", path],
        "worker": ["lint", "--worker", path, "c.json"],
    }
    said = mm2mgr(*arguments[how], code=1)
    what = "it is a pipe, and nothing was written to it for 0.1 s" if kind == "pipe" else "it is a device, not a file"
    assert f"cannot be read: {what}" in said.out + said.err
    assert str(path) in said.out + said.err


def test_a_pipe_that_somebody_writes_to_is_read(mm2mgr: Command) -> None:  # noqa: F811
    reading, writing = os.pipe()
    os.write(writing, (BASE + FLOW).encode())
    os.close(writing)
    try:
        assert "mm2.a.b.source.f" in mm2mgr("-f", f"/dev/fd/{reading}", "render").out
    finally:
        os.close(reading)


@pytest.mark.parametrize("name", ["x.json", "x.yaml", "x.properties"])
def test_many_items_and_large_files(mm2mgr: Command, name: str) -> None:  # noqa: F811
    file = mm2mgr.folder / name
    for text, limit in (("[" + "1," * 1_000_000 + "1]", ""), ("#" * 20_000_001, "is larger than 20 MB")):
        file.write_text(text, encoding="utf-8")
        said = mm2mgr("lint", file, code=1)
        assert name in said.out + said.err
        assert (limit or " values") in said.out + said.err


def test_a_tree_of_many_items(mm2mgr: Command) -> None:  # noqa: F811
    write(mm2mgr.tree, x=BASE + "x-many: [" + "1," * 1_000_000 + "1]\n" + FLOW)
    assert "contains more than 1,000,000 values" in mm2mgr("render", code=1).err


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000, '{"a":' * 100_000])
def test_deep_nesting(mm2mgr: Command, text: str) -> None:  # noqa: F811
    write(mm2mgr.tree, x=text)
    said = mm2mgr("render", code=1)
    assert "clusters/x.yaml:" in said.err
    (mm2mgr.folder / "c.json").write_text(text, encoding="utf-8")
    mm2mgr("lint", "c.json", code=1)
    assert "nested too deeply" in mm2mgr("apply", "c.json", code=1).err or not text.startswith(("[", '{"'))


def test_links_that_lead_out_of_the_tree(mm2mgr: Command) -> None:  # noqa: F811
    write(mm2mgr.tree, x=BASE + FLOW)
    write(mm2mgr.folder / "outside", y="CANARY: 1\n")
    for name, to in (("file.yaml", "outside/y.yaml"), ("folder", "outside")):
        (mm2mgr.tree / name).symlink_to(mm2mgr.folder / to)
        said = mm2mgr("render", code=1)
        assert f"clusters/{name}:1:1: a link that leads out of the tree" in said.err
        assert "CANARY" not in said.err
        (mm2mgr.tree / name).unlink()


@pytest.mark.parametrize("topics", ["t", "t.*", ".*-t{n}-.*", "[a-z].*{n}.*"])
def test_thousands_of_flows_that_share_topics_are_compared_in_seconds(topics: str) -> None:
    every = [Selection(NameFilter((topics.format(n=n),), ()), "default", "a", "b") for n in range(1500)]
    found = list(overlaps(every))
    assert sorted({later for _, later, _ in found}) == list(range(1, 1500))
    assert all(
        every[one].takes(shared.topic) and every[two].takes(shared.topic) for one, two, shared in found if shared.topic
    )


def test_thousands_of_connectors_of_one_kind_are_not_compared() -> None:
    every = [Selection(NameFilter((".*",), ()), "default", "a", "b") for _ in range(1500)]
    assert list(overlaps(every, [1] * 1500)) == []
