"""Which problem comes first, which are the same, and the command that each of them names."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import click
import pytest

from mm2mgr.cli import cli
from mm2mgr.problems import KINDS
from mm2mgr.problems.connectors import TaskFailed
from mm2mgr.problems.kind import LiveProblem, ProblemSubject
from mm2mgr.problems.order import TROUBLE_OF_KIND, WORST_TROUBLE_FIRST, order_problems
from tests.observe.examples import example, example_problem


def parsed(command: str) -> click.Context:
    """Return the context of a command as its shell hands it over; click's error for one that is not there."""
    program, *words = shlex.split(command)
    assert program == "mm2mgr"
    group: click.Command = cli
    context = click.Context(cli, info_name="mm2mgr", **cli.context_settings)  # else -h is gone for all tests after it
    while isinstance(group, click.Group):
        name, group, words = group.resolve_command(context, words)
        assert group is not None
        context = click.Context(group, parent=context, info_name=name)
    group.parse_args(context, words)
    return context


def test_every_kind_has_its_place() -> None:
    assert TROUBLE_OF_KIND.keys() == KINDS.keys()
    assert list(dict.fromkeys(TROUBLE_OF_KIND.values())) == list(WORST_TROUBLE_FIRST)
    assert all(KINDS[kind].severity == "critical" for kind in TROUBLE_OF_KIND if TROUBLE_OF_KIND[kind] == "loss")
    assert all(KINDS[kind].severity != "critical" for kind in TROUBLE_OF_KIND if TROUBLE_OF_KIND[kind] == "differs")


@pytest.mark.parametrize("subject", [None, ProblemSubject("east", "mm2")], ids=["flow", "connector"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_command_that_exists(kind: str, subject: ProblemSubject | None) -> None:
    found = example_problem(kind, subject)
    context = parsed(found.command)
    verbs = {verb for verb in re.findall(r"mm2mgr (\w+)", found.sentence) if verb in cli.commands}
    assert not verbs or context.command_path.split()[1] in verbs, "the sentence names the same"


@pytest.mark.parametrize("name", ["a b", "x; rm -rf ~", "$(id)", "it's", "`id`"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_name_from_a_cluster_is_one_word_of_the_command(kind: str, name: str) -> None:
    evidence = example(kind)
    named = {field: (name,) for field in ("topics",) if hasattr(evidence, field)} if kind != "orphan" else {}
    named |= {field: name for field in ("topic", "pair") if hasattr(evidence, field)}  # type: ignore[misc]
    found = LiveProblem(replace(evidence, **named), ProblemSubject("east", name, ""))  # type: ignore[type-var]
    assert all(word == name or name not in word or word == f"east/{name}" for word in shlex.split(found.command))


def failed(flow: str, seconds: float = 60.0, cause: str = "time-out") -> LiveProblem:
    subject = ProblemSubject("east", f"mm2.{flow}", flow, (0,))
    return LiveProblem(TaskFailed(f"no answer in {seconds} s", (cause, "")), subject, seconds)


def test_the_worst_comes_first_and_the_same_of_several_flows_is_one_group() -> None:
    loss, drift = example_problem("records-lost"), example_problem("config-differs")
    many = [failed(f"orders:dc{number}->agg", number) for number in range(1, 5)]
    groups = order_problems([drift, *many, failed("x:a->b", cause="authentication"), loss])
    assert [(group.trouble, len(group.problems)) for group in groups] == [
        ("loss", 1), ("FAILED", 4), ("FAILED", 1), ("differs", 1),
    ]  # fmt: skip
    assert [group.is_danger for group in groups] == [True, True, True, False]
    assert groups[1].problems[0].subject.flow == "orders:dc4->agg", "the longest first"
    assert groups[1].command.startswith("mm2mgr restart --failed 'orders:dc4->agg' 'orders:dc3->agg'")
    assert parsed(groups[1].command).params["names"] == tuple(f"orders:dc{number}->agg" for number in (4, 3, 2, 1))


def test_how_long_it_lasts_makes_no_group_of_its_own() -> None:
    subjects = [ProblemSubject("east", f"mm2.{name}", f"{name}:a->b") for name in ("orders", "clicks", "carts")]
    silent = example("workers-silent")
    problems = [
        LiveProblem(silent, subject, seconds) for subject, seconds in zip(subjects, (59, 60, 3_725), strict=True)
    ]
    (group,) = order_problems(problems)
    assert [problem.since_seconds for problem in group.problems] == [3_725, 60, 59]


def test_a_command_of_many_flows_stays_short() -> None:
    (group,) = order_problems([failed(f"orders:dc{number}->agg") for number in range(40)])
    assert group.command == "mm2mgr restart --failed --all"
    resting = [example_problem("resting-while-lag-grows", ProblemSubject("e", "m", f"f:s{n}->b")) for n in range(20)]
    (group,) = order_problems(resting)
    assert len(parsed(group.command).params["names"]) == 20, "nothing is resumed that is not named"
