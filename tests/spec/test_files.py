"""Many files, one tree: joining, places, anchors; and files that are no YAML, no text, no files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mm2mgr.errors import Mm2mgrError, SpecError
from mm2mgr.spec.files import load
from tests.spec.trees import BASE, FLOW, PYYAML_6_0_4, complaint, complaints, expanded, loaded, write


def test_files_join_whatever_their_names_and_folders(tmp_path: Path) -> None:
    spec = loaded(tmp_path, z=BASE, flows__one=FLOW, flows__two=FLOW.replace("f:", "g:", 1))
    assert set(spec.tree.flows) == {"f", "g"}
    assert [Path(file).name for file in spec.files] == ["one.yaml", "two.yaml", "z.yaml"]
    assert str(spec.place("flows", "g", "sources")) == f"{tmp_path}/flows/two.yaml:3:5"
    assert str(spec.place("flows", "g", "tasks", "max")) == f"{tmp_path}/flows/two.yaml:2:3"  # nearest that was written


def test_one_file_is_a_tree_too(tmp_path: Path) -> None:
    folder = write(tmp_path, x=BASE + FLOW)
    assert load([folder / "x.yaml"]).tree == load([folder]).tree


def test_the_documents_of_one_file_join(tmp_path: Path) -> None:
    assert set(loaded(tmp_path, x=f"{BASE}---\n{FLOW}---\n").tree.flows) == {"f"}


def test_an_alias_twice_over_files_names_both_places(tmp_path: Path) -> None:
    again = "clusters:\n  a: {bootstrap_servers: [a2:9092]}\n"
    found = complaint(tmp_path, x=BASE + FLOW, y=again)
    assert found == "y.yaml:2:3: 'clusters.a' is already declared at x.yaml:3:3"


def test_an_alias_twice_in_one_file(tmp_path: Path) -> None:
    text = BASE.replace("  b:", "  a:") + FLOW
    assert complaint(tmp_path, x=text) == "x.yaml:4:3: duplicate key 'a', first in line 3: keep one"


def test_two_owners_clash_and_equal_ones_do_not(tmp_path: Path) -> None:
    assert "y.yaml:1:1: 'owner' has another value at" in complaint(tmp_path, x=BASE + FLOW, y="owner: other\n")
    assert loaded(tmp_path, y="owner: team\n").tree.owner == "team"


def test_defaults_join_deeply_but_say_no_leaf_twice(tmp_path: Path) -> None:
    first = "defaults: {flows: {tasks: {min: 2}}}\n"
    spec = loaded(tmp_path, x=BASE + FLOW, y=first, z="defaults: {flows: {tasks: {limit: 8}}}\n")
    assert (spec.tree.defaults.flows.tasks.min, spec.tree.defaults.flows.tasks.limit) == (2, 8)
    assert "'defaults.flows.tasks.min' is already declared" in complaint(tmp_path, z=first)


def test_lists_of_several_files_follow_one_another_and_keep_their_places(tmp_path: Path) -> None:
    one = "clusters: {c: {bootstrap_servers: [c1:9092]}}\nlinks:\n  - {between: [a, c], rtt: 1ms}\n"
    two = "links:\n  - {between: [a, b], rtt: 2ms}\n  - {between: [a, nowhere], rtt: 3ms}\n"
    assert complaint(tmp_path, w=one, x=BASE + FLOW, y=two).startswith("y.yaml:3:19: unknown cluster alias 'nowhere'")
    spec = loaded(tmp_path)
    assert [link.rtt for link in spec.tree.links] == [0.001, 0.002, 0.003]
    assert str(spec.place("links", 1)).endswith("y.yaml:2:5")


def test_a_section_whose_entries_are_all_commented_out_is_no_problem(tmp_path: Path) -> None:
    assert expanded(tmp_path, x=BASE + FLOW, y="flows:\n#  g: {}\nlinks:\n").flows


def test_anchors_keep_the_place_where_the_value_stands(tmp_path: Path) -> None:
    text = BASE + FLOW + "    record_producer: &p {linger.ms: 7}\n    source_admin: *p\n"
    (flow,) = expanded(tmp_path, x=text).flows
    assert flow.client("source_admin")["linger.ms"] == "7"
    assert flow.client("source_admin")["linger.ms"].origin.where.endswith("x.yaml:12")


MERGED = """\
    record_producer: &one {linger.ms: 7, acks: all}
    source_admin: &two
      <<: *one
      linger.ms: 8
    target_admin: *two
    source_consumer: {<<: *two, acks: "1"}
"""


def test_merge_keys_give_way_to_own_keys_and_may_be_used_again(tmp_path: Path) -> None:
    (flow,) = expanded(tmp_path, x=BASE + FLOW + MERGED).flows
    written = {"source_admin": ("8", "all"), "target_admin": ("8", "all"), "source_consumer": ("8", "1")}
    for block, values in written.items():
        client = flow.client(block)
        assert (client["linger.ms"], client["acks"]) == values
        assert client["linger.ms"].origin.where.endswith("x.yaml:15")
    assert flow.client("target_admin")["acks"].origin.where.endswith("x.yaml:12")


def test_a_key_twice_beside_a_merge_is_still_found(tmp_path: Path) -> None:
    text = BASE + FLOW + "    source_admin: &x {retries: 1}\n    target_admin: {<<: *x, a.b: 1, a.b: 2}\n"
    assert complaint(tmp_path, x=text) == "x.yaml:13:36: duplicate key 'a.b', first in line 13: keep one"


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("clusters: [", "x.yaml:1:11", "not YAML"),
        ("a: b: c\n", "x.yaml:1:5", "not YAML"),
        ("owner: 'x\n", "x.yaml:1:8", "not YAML"),
        ("\tx: 1\n", "x.yaml:1:1", "not YAML"),
        ("owner: *nothing\n", "x.yaml:1:8", "not YAML"),
        ("- a\n- b\n", "x.yaml:1:1", "the file must contain keys"),
        ("just text\n", "x.yaml:1:1", "the file must contain keys"),
        ("{a: 1}: b\n", "x.yaml:1:1", "a key must be plain text"),
        ("owner: !!python/object:os.system {}\n", "x.yaml:1:8", "python/object:os.system is not supported"),
        ("owner: !secret x\n", "x.yaml:1:8", "the tag !secret is not supported"),
        ("owner: 2026-13-45\n", "x.yaml:1:8", "write it in quotes"),
        ("owner: &a [*a]\n", "x.yaml:1:1", "nested too deeply"),
        pytest.param("owner: " + "[" * 100_000, "x.yaml:1:1007", "nested too deeply", id="deep brackets"),
        pytest.param("owner: " + "{a: " * 100_000, "x.yaml:1:4004", "nested too deeply", id="deep braces"),
        pytest.param(
            "owner:\n  " + "- " * 100_000,
            f"x.yaml:2:{1999 if PYYAML_6_0_4 else 2001}",
            "nested too deeply",
            id="deep lists",
        ),
    ],
)
def test_what_is_no_yaml_says_where(tmp_path: Path, text: str, place: str, says: str) -> None:
    found = complaints(tmp_path, x=text)
    assert [one for one in found if one.startswith(f"{place}: ") and says in one], found


def test_a_merge_that_is_not_settled_says_so(tmp_path: Path) -> None:
    text = f"{BASE}flows:\n{'<' * 7} HEAD\n  f: {{}}\n{'=' * 7}\n  g: {{}}\n{'>' * 7} theirs\n"
    assert complaint(tmp_path, x=text).startswith("x.yaml:8:1: not YAML: a conflict of a merge: keep one side")


def test_every_broken_file_is_reported_at_once(tmp_path: Path) -> None:
    found = complaints(tmp_path, x="a: [", y="b: [", z=BASE)
    assert [one.split(":")[0] for one in found] == ["x.yaml", "y.yaml"]


def test_anchors_that_multiply_are_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mm2mgr.spec.places._MAX_VALUES", 10_000)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert "expand to too many values" in complaint(tmp_path, x="\n".join(lines))


def test_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"owner: caf\xe9\n")
    assert complaint(tmp_path) == "x.yaml:1:1: is not UTF-8 text (byte 10)"


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xef\xbb\xbf" + (BASE + FLOW).replace("\n", "\r\n").encode())
    assert expanded(tmp_path).flows


@pytest.mark.parametrize("text", [None, "", "# only words\n", "---\n---\n"])
def test_an_empty_tree_says_so(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        write(tmp_path, x=text)
    with pytest.raises(SpecError, match="no YAML file with content") as caught:
        load([tmp_path])
    assert caught.value.hint == "mm2mgr init writes a starter"


def test_a_folder_that_may_not_be_looked_at_says_so(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(Mm2mgrError, match="cannot be read: Too many levels of symbolic links"):
        load([tmp_path / "round"])


def test_a_missing_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(Mm2mgrError, match="no such file or folder") as caught:
        load([tmp_path / "absent"])
    assert caught.value.hint


# --- files that are easily left out: what is left out would be deleted by apply --prune -------------------------------


def test_a_suffix_in_capitals_counts(tmp_path: Path) -> None:
    write(tmp_path, x=BASE + FLOW)
    (tmp_path / "Y.YAML").write_text(FLOW.replace("f:", "g:", 1).replace("[t]", "[u]"), encoding="utf-8")
    (tmp_path / "z.Yml").write_text(FLOW.replace("f:", "h:", 1).replace("[t]", "[v]"), encoding="utf-8")
    assert {flow.name for flow in expanded(tmp_path).flows} == {"f", "g", "h"}


@pytest.mark.parametrize("name", ["y.yaml", "flows"])  # a link without a suffix may have led to a folder
def test_a_link_that_leads_nowhere_is_a_problem(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to(tmp_path / "gone")
    assert complaint(tmp_path, x=BASE + FLOW) == f"{name}:1:1: cannot be read: No such file or directory"


def test_a_link_to_a_folder_of_the_tree_is_followed(tmp_path: Path) -> None:
    folder = write(tmp_path / "tree", x=BASE, **{".elsewhere__y": FLOW})
    (folder / "flows").symlink_to(".elsewhere")
    (folder / "flows" / "round").symlink_to(folder)  # and back up again
    spec = loaded(folder)
    assert set(spec.tree.flows) == {"f"}
    assert [Path(file).relative_to(folder) for file in spec.files] == [Path("flows/y.yaml"), Path("x.yaml")]


def test_a_configmap_as_kubernetes_mounts_it_declares_everything_once(tmp_path: Path) -> None:
    write(tmp_path / "..2026_01_01", x=BASE, y=FLOW)
    (tmp_path / "..data").symlink_to("..2026_01_01")
    for name in ("x.yaml", "y.yaml"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    write(tmp_path, **{".draft": "owner: other\n"})
    assert [Path(file).name for file in loaded(tmp_path).files] == ["x.yaml", "y.yaml"]


def test_a_folder_or_a_pipe_with_the_name_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "y.yaml").mkdir()  # what docker makes of a bind mount whose file is missing
    os.mkfifo(tmp_path / "z.yml")
    assert sorted(complaints(tmp_path, x=BASE + FLOW)) == [
        "y.yaml:1:1: cannot be read: it is a folder",
        "z.yml:1:1: cannot be read: it is not a regular file",
    ]


def test_a_folder_that_may_not_be_listed_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, scandir = tmp_path / "flows", os.scandir
    closed.mkdir()

    def refusing(path: str) -> Iterator[os.DirEntry[str]]:  # root may list any folder, whatever its mode
        if str(path) == str(closed):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert complaint(tmp_path, x=BASE + FLOW) == "flows:1:1: cannot be read: Permission denied"


def test_a_tree_below_a_folder_named_overrides_is_a_tree(tmp_path: Path) -> None:
    sized = 'sizing:\n  "f:a->b": {tasks_max: 6}\n'
    folder = tmp_path / "overrides" / "clusters"
    (flow,) = expanded(folder, x=BASE + FLOW + "    tasks: {limit: 4}\n", overrides__s=sized).flows
    assert flow.tasks.maximum.origin.kind == "override"
    assert flow.origin("tasks", "limit").kind == "spec"


def test_single_files_may_be_named_with_their_overrides(tmp_path: Path) -> None:
    folder = write(tmp_path, x=BASE + FLOW, overrides__s='sizing:\n  "f:a->b": {tasks_max: 6}\n')
    assert load([folder / "x.yaml", folder / "overrides" / "s.yaml"]).tree.sizing["f:a->b"].tasks_max == 6
