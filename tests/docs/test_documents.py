"""What the documents name exists: commands, options, exit codes, files that links lead to, make targets. The README is short."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from mm2mgr.cli import cli
from mm2mgr.errors import EXIT_CODES
from mm2mgr.observe.reading import Patience
from tools.docs import slug

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "mm2mgr"
FOLDERS = {path.name for root in (REPOSITORY, PACKAGE) for path in root.iterdir() if path.is_dir()} | {
    "mm2mgr",
    "tests",
    "tools",
}
LINES_OF_README = 120
GLOBAL_OPTIONS_WITH_A_VALUE = {"--clusters", "-f", "--templates"}
FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>\w*)\n(?P<body>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")


def documents() -> dict[str, str]:
    """Return every document by path: README.md and the like, and all of docs/."""
    names = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md"]
    found = [REPOSITORY / name for name in names] + sorted((REPOSITORY / "docs").rglob("*.md"))
    return {path.relative_to(REPOSITORY).as_posix(): path.read_text() for path in found}


DOCUMENTS = documents()
README = DOCUMENTS["README.md"]


def commands(group: click.Command = cli, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Return every command below a group with its words, such as `sandbox up`."""
    for word, command in getattr(group, "commands", {}).items():
        full = f"{name} {word}".strip()
        yield full, command
        yield from commands(command, full)


COMMANDS = dict(commands())


def blocks(text: str) -> list[tuple[str, str]]:
    """Return the code blocks of a document: what kind, and the text."""
    return [(match["kind"], match["body"]) for match in FENCE.finditer(text)]


def code_spans(text: str) -> list[str]:
    return CODE.findall(FENCE.sub("", text))


def calls(text: str) -> list[list[str]]:
    """Return the words after `mm2mgr` of every command line of a document, in code blocks and in backticks."""
    lines = [
        line
        for kind, block in blocks(text)
        if kind in {"", "sh", "console", "yaml", "crontab"}
        for line in block.replace("\\\n", " ").splitlines()
        if kind != "console" or line.startswith("$ ")
    ]
    lines = [re.sub(r"(?:^|\s)#.*|\s\d?>.*", "", line) for line in [*lines, *code_spans(text)]]
    pattern = r"(?:^|[\s/;&\"])mm2mgr ((?:'[^']*'|->|\\\||[^|;&\">'])+)"
    found = [match[1] for line in lines for match in re.finditer(pattern, line)]
    manifests = [yaml.safe_load_all(block) for kind, block in blocks(text) if kind == "yaml"]
    return [
        *(shlex.split(call.replace("…", "").replace(r"\|", "|")) for call in found),
        *(command[1:] for each in manifests for document in each for command in commands_in(document)),
    ]


def commands_in(node: object) -> Iterator[list[str]]:
    """Return every `command: [mm2mgr, …]` of a Kubernetes manifest."""
    if isinstance(node, list) and node and node[0] == "mm2mgr":
        yield node
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from commands_in(each)


def command_of(words: list[str]) -> tuple[str, list[str]]:
    """Return the command that the words call, past the global options, and what is left of them."""
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in GLOBAL_OPTIONS_WITH_A_VALUE else words[1:]
    for length in (3, 2, 1):
        name = " ".join(words[:length])
        if len(words) >= length and name in COMMANDS:
            return name, words[length:]
    return "", words


def unknown_calls(text: str) -> list[str]:
    """Return the command lines of a document that mm2mgr would refuse: another command, or an option that it does not have."""
    unknown = []
    for words in calls(text):
        name, rest = command_of(words)
        known = {"-h", "--help"}
        for param in COMMANDS[name].params if name else cli.params:
            known |= {*param.opts, *param.secondary_opts}
        options = {word.split("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        is_no_command = bool(rest) and (not name or (isinstance(COMMANDS[name], click.Group) and rest[0][0] != "-"))
        if is_no_command or not options <= known:
            unknown.append("mm2mgr " + " ".join(words))
    return unknown


def links(text: str) -> list[str]:
    """Return the targets of links that stay in the repository."""
    found = re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", CODE.sub("", FENCE.sub("", text)).replace("[]", ""))
    return [link for link in found if not re.match(r"\w+:", link)]


def anchors(text: str) -> set[str]:
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)}


def broken(name: str, text: str) -> list[str]:
    """Return the links of a document that lead to no file or to no heading of it."""
    found = []
    for link in links(text):
        path, _, anchor = link.partition("#")
        target = ((REPOSITORY / name).parent / path).resolve() if path else REPOSITORY / name
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target.read_text())):
            found.append(link)
    return found


def unknown_exit_codes(text: str) -> list[str]:
    named = re.findall(r"exit(?:s| code| codes)?(?: with| is)? `?(\d+)\b`?", text, re.IGNORECASE)
    return [code for code in named if int(code) not in EXIT_CODES]


def missing_paths(text: str) -> list[str]:
    """Return the files and folders of this repository that a document names in backticks and that do not exist."""
    named = re.findall(r"`([a-z0-9_]+/[\w./-]*)`", FENCE.sub("", text))
    ours = [path for path in named if path.split("/")[0] in FOLDERS]
    return [path for path in ours if not any((root / path).exists() for root in (REPOSITORY, REPOSITORY / "mm2mgr"))]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_a_document_names_exists(name: str) -> None:
    text = DOCUMENTS[name]
    assert unknown_calls(text) == []
    assert broken(name, text) == []
    assert unknown_exit_codes(text) == []
    assert missing_paths(text) == []


def test_the_architecture_names_every_part_of_the_package_and_no_other() -> None:
    rows = DOCUMENTS["docs/explanation/architecture.md"].split("| in `mm2mgr/` |")[1].split("\n\n")[0].splitlines()[2:]
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]
    assert [name for name in named if not (PACKAGE / name).exists()] == []
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()} - set(named) == set()


def test_every_command_is_documented() -> None:
    documented = {command_of(words)[0] for name, text in DOCUMENTS.items() for words in calls(text)}
    wanted = {name for name, command in COMMANDS.items() if not isinstance(command, click.Group) and not command.hidden}
    assert wanted - documented == set()


def test_the_readme_is_short_and_leads_to_every_part_of_the_documentation() -> None:
    assert len(README.splitlines()) <= LINES_OF_README
    assert {"docs/tutorial.md", "docs/README.md"} <= {link.partition("#")[0] for link in links(README)}
    reached = {"docs/README.md"} | {f"docs/{link.partition('#')[0]}" for link in links(DOCUMENTS["docs/README.md"])}
    reached |= {f"docs/reference/rules/{link}" for link in links(DOCUMENTS["docs/reference/rules/README.md"])}
    assert [name for name in DOCUMENTS if name.startswith("docs/") and name not in reached] == []


def test_how_soon_a_problem_is_reported_is_what_the_code_says() -> None:
    rows = re.findall(r"^\| after .*", DOCUMENTS["docs/how-to/something-is-red.md"], re.MULTILINE)
    told = re.findall(r"\b(a|\d+) (s|minutes?)\b", " ".join(rows))
    assert {float(count.replace("a", "1")) * (1 if unit == "s" else 60) for count, unit in told} == set(
        vars(Patience()).values()
    )


def test_every_make_target_that_is_named_exists() -> None:
    text = "\n".join(DOCUMENTS.values())
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE))
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test", "docs", "lint"} <= named <= targets


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if "/reference/" not in name])
def test_every_block_of_yaml_or_json_is_whole(name: str) -> None:
    for kind, block in blocks(DOCUMENTS[name]):
        if kind == "yaml":
            assert list(yaml.safe_load_all(block))
        if kind == "json":
            assert json.loads(block)


@pytest.mark.parametrize("name", ["README.md", "docs/how-to/declare.md"])
def test_a_tree_that_is_shown_compiles_without_an_error_of_lint(name: str, tmp_path: Path) -> None:
    (tree,) = [block for kind, block in blocks(DOCUMENTS[name]) if kind == "yaml" and "owner:" in block]
    (tmp_path / "tree.yaml").write_text(tree)
    done = CliRunner().invoke(cli, ["--clusters", str(tmp_path), "lint", "--fail-on", "warning"], standalone_mode=False)
    assert done.exception is None
    assert (done.return_value, done.output.startswith("No findings")) == (0, True), done.output


@pytest.mark.parametrize("name", [name for name, each in COMMANDS.items() if not isinstance(each, click.Group)])
def test_every_help_has_an_example_of_its_command(name: str) -> None:
    command = COMMANDS[name]
    text = command.get_help(click.Context(command, info_name=f"mm2mgr {name}"))
    assert "Example:" in text
    assert re.search(rf"mm2mgr [^\n]*\b{name.rsplit(maxsplit=1)[-1]}\b", text.partition("Example:")[2])


# --- the checks find what they are for --------------------------------------------------------------------------------


def test_commands_are_found_in_blocks_and_in_backticks() -> None:
    text = (
        "Run `mm2mgr -f tree plan --full`, or:\n```sh\nmm2mgr sandbox up && mm2mgr status --output json  # now\n```\n"
    )
    assert [command_of(words)[0] for words in calls(text)] == ["sandbox up", "status", "plan"]
    assert unknown_calls(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "`mm2mgr plna`",
        "`mm2mgr plan --ful`",
        "```sh\ncd x && mm2mgr sandbox left\n```",
        "```console\n$ mm2mgr plna\n```",
    ],
)
def test_a_command_or_an_option_that_does_not_exist_is_found(text: str) -> None:
    assert unknown_calls(text)


@pytest.mark.parametrize("link", ["docs/nowhere.md", "docs/tutorial.md#nowhere", "#nowhere"])
def test_a_broken_link_is_found(link: str) -> None:
    assert broken("README.md", f"see [there]({link})") == [link]


def test_a_file_that_does_not_exist_is_found() -> None:
    assert missing_paths("`mm2mgr/nowhere.py`, `spec/models.py`, `tests/live/`, `owner/name`") == ["mm2mgr/nowhere.py"]


@pytest.mark.parametrize("text", ["exit code 4", "it exits with 71", "Exit code `9`"])
def test_an_exit_code_that_no_command_has_is_found(text: str) -> None:
    assert unknown_exit_codes(text)
