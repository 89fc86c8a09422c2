"""The generated pages of docs/reference match the code; `make docs` writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import docs

RULE = "rules/dead-key.md"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return docs.pages()


def test_the_reference_is_what_the_code_says() -> None:
    assert docs.stale() == [], "run `make docs` and commit what it wrote"


def test_a_page_that_was_edited_or_lost_and_one_of_a_rule_that_is_gone_are_found_and_written(
    pages: dict[str, str], tmp_path: Path
) -> None:
    assert set(docs.write(tmp_path)) == set(pages)
    (tmp_path / RULE).write_text(pages[RULE].replace("dead-key", "dead-keys"))
    (tmp_path / "exit-codes.md").unlink()
    (tmp_path / "rules" / "gone.md").write_text(docs.MARK)
    (tmp_path / "by-hand.md").write_text("# Not generated\n")
    assert docs.stale(tmp_path) == ["exit-codes.md", RULE, "rules/gone.md"]
    docs.write(tmp_path)
    assert docs.stale(tmp_path) == []
    assert not (tmp_path / "rules" / "gone.md").exists()
    assert (tmp_path / "by-hand.md").exists()


def test_every_rule_has_a_page_with_its_story(pages: dict[str, str]) -> None:
    from mm2mgr.lint.rules import RULES

    for rule in RULES:
        text = pages[f"rules/{rule.id}.md"]
        assert text.startswith(f"{docs.MARK}\n\n# {rule.id}\n")
        assert f"| Severity | {rule.severity} |" in text
        assert all(docs.prose(line) in text for line in rule.story.splitlines()[1:] if line)


def test_every_key_of_the_tree_is_in_the_yaml_page(pages: dict[str, str]) -> None:
    from mm2mgr.spec.mistakes import json_schema

    schema = json_schema()
    text = pages["yaml.md"]
    keys = {key for each in (schema, *schema["$defs"].values()) for key in each.get("properties", {})}
    assert [key for key in keys if f"| `{key}` |" not in text] == []
    assert "| `refresh_interval` | text such as `80ms`, `10min` | `600s` |" in text


def test_every_option_is_in_the_commands_page_and_every_example_in_a_block(pages: dict[str, str]) -> None:
    text = pages["commands.md"]
    section = text.split("\n## mm2mgr apply\n")[1].split("\n## ")[0]
    for option in ("--flow", "--prune", "--allow KIND", "--allow-deletes", "-y, --yes", "--wait", "-o, --output"):
        assert f"| `{option}" in section
    assert "```sh\nmm2mgr plan --out plan.json\nmm2mgr apply plan.json --canary orders --rollback\n```" in section


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ssl.* and sasl.*", r"ssl.\* and sasl.\*"),
        ("the topic __consumer_offsets", r"the topic \__consumer_offsets"),
        ("`sasl.*` and <alias>", r"`sasl.*` and \<alias>"),
        ("snake_case stays", "snake_case stays"),
    ],
)
def test_prose_shows_every_character(text: str, shown: str) -> None:
    assert docs.prose(text) == shown
