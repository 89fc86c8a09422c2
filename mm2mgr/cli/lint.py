"""The command lint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from mm2mgr import operations
from mm2mgr.cli.options import Seconds, invalid_arguments, talk_other_line
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.operations import LintReport, Severity


def _quantity(parse: str) -> Callable[[click.Context, click.Parameter, str | None], float | None]:
    """Return a callback that reads an option with a function of `mm2mgr.spec.quantities`."""

    def read(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
        from mm2mgr.spec import quantities

        try:
            return None if text is None else float(getattr(quantities, parse)(text))
        except ValueError as error:
            raise click.BadParameter(f"'{text}' is not {error}") from error

    return read


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path))
@click.option(
    "--connect", "connects", multiple=True, metavar="URL|NAME", help="All connectors there, owned or not (repeatable)."
)
@click.option("--kafka", metavar="VERSION", help="Kafka version of the workers, instead of the detected one.")
@click.option(
    "--worker",
    type=click.Path(path_type=Path, dir_okay=False),
    help="connect-distributed.properties of the workers that run FILEs.",
)
@click.option(
    "--rtt",
    callback=_quantity("duration_seconds"),
    metavar="80ms",
    help="Round trip between source and target, where no link is declared.",
)
@click.option(
    "--bandwidth",
    callback=_quantity("bytes_per_second"),
    metavar="1Gbit/s",
    help="Bandwidth of the same link; needs --rtt.",
)
@click.option("--brokers", type=click.IntRange(1), help="Brokers per Kafka cluster, where unknown.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info", "never"]),
    default="error",
    show_default=True,
    help="Exit 1 for findings of this severity or worse.",
)
@click.option("--ignore", "ignored", multiple=True, metavar="RULE", help="Leave this rule out (repeatable).")
@click.option("--all", "everything", is_flag=True, help="Also show silenced findings, with the reason.")
@click.option("--rules", is_flag=True, help="Only list the rules.")
@click.option(
    "--timeout",
    type=Seconds(0, min_open=True),
    default=30.0,
    show_default=True,
    help="Time limit per Connect cluster, in seconds.",
)
@click.option(
    "--output",
    "-o",
    type=click.Choice(["text", "json", "sarif"]),
    default="text",
    show_default=True,
    help="Result format.",
)
@click.pass_obj
def lint(
    workspace: Workspace,
    files: tuple[Path, ...],
    connects: tuple[str, ...],
    kafka: str | None,
    worker: Path | None,
    rtt: float | None,
    bandwidth: float | None,
    brokers: int | None,
    fail_on: Severity | Literal["never"],
    ignored: tuple[str, ...],
    everything: bool,
    rules: bool,
    timeout: float,
    output: str,
) -> int:
    """Find settings that do nothing or cause trouble, with the fix.

    Checks the tree, or FILEs, or Connect clusters. A FILE is a connector's JSON or properties, a dedicated mm2.properties, a Strimzi resource, or a tree. All inputs are
    looked at together, so a loop through several is found. `--connect` takes the name of a Connect cluster of the tree,
    or a URL; the URL's user and password come from $MM2MGR_CONNECT_USER and $MM2MGR_CONNECT_PASSWORD.

    A rule is silenced where it is fine, with the reason: `# mm2mgr: silence RULE why` above or on the line, `silence:
    {RULE: why}` on a flow, or the key `mm2mgr.silence.RULE` in a connector. `mm2mgr explain RULE` explains it.

    \b
    Example:
      mm2mgr lint
      mm2mgr lint mm2.properties --kafka 3.9 --fail-on warning
      mm2mgr lint --connect http://connect-e1:8083 -o sarif > lint.sarif
    """
    from mm2mgr.output.console import complain

    if rules:
        _say_rules(output)
        return 0
    if bandwidth is not None and rtt is None:
        raise click.UsageError("--bandwidth needs --rtt: the bytes in flight depend on both")
    with invalid_arguments():
        report = operations.lint(
            workspace,
            files,
            connects=connects,
            kafka=kafka,
            worker=worker,
            rtt_seconds=rtt,
            bytes_per_second=bandwidth,
            brokers=brokers,
            ignore=ignored,
            timeout_seconds=timeout,
            report=talk_other_line,
        )
    _say(report, output, everything=everything)
    for error in report.unread:
        complain(error.message, error.hint)
    return int(report.fails(fail_on))


def _say(report: LintReport, output: str, *, everything: bool) -> None:
    from mm2mgr.output.console import say_json
    from mm2mgr.output.lint_text import say_findings
    from mm2mgr.output.sarif import sarif

    found = report.to_dict(everything=everything)
    if output == "text":
        say_findings(found)
    elif output == "json":
        say_json(found)
    else:
        rules = [rule.to_dict() for rule in operations.rules()]
        say_json(sarif(found["findings"], rules, Path.cwd(), found["summary"]["unread"]))


def _say_rules(output: str) -> None:
    from mm2mgr.output.console import say_json
    from mm2mgr.output.lint_text import say_rules

    if output == "sarif":
        raise click.UsageError("--rules has -o text and -o json")
    rules = [rule.to_dict() for rule in operations.rules()]
    if output == "json":
        say_json(rules)
    else:
        say_rules(rules)
