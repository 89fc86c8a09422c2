"""The commands that compare records with their mirrors: `audit`, `records`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr import operations
from mm2mgr.cli.options import (
    OUTPUT_FILE,
    Count,
    Duration,
    Parsed,
    command,
    invalid_arguments,
    option,
    output_in,
    output_option,
    reading,
    spark_option,
    store_option,
    write_html,
)
from mm2mgr.errors import InvalidArgument
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.operations import AuditOptions, AuditProgress, AuditReport, Replay


def _moment(text: str) -> int:
    """Return milliseconds since 1970 of a time such as 2026-11-26T10:00 (UTC without a zone), or of 2h ago."""
    from mm2mgr.spec.scalars import moment

    return moment(text).resolve(time.time())


def _share(text: str) -> float:
    from mm2mgr.spec.scalars import share

    try:
        return share(text)
    except ValueError as error:
        raise ValueError(f"should be {error}") from None


_SAMPLE = 0.02
_MOMENT = Parsed("time", _moment)


@command("Every day", 13)
@click.argument("names", nargs=-1, metavar="[FLOW|TOPIC]...")
@option("--since", "since_ms", type=_MOMENT, metavar="TIME|2h", help="Only records with this timestamp or a later one.")
@option("--until", "until_ms", type=_MOMENT, metavar="TIME|2h", help="Only records with an earlier timestamp.")
@option(
    "--partition", "partitions", type=Count(0), multiple=True, metavar="N", help="Only this partition (repeatable)."
)
@option(
    "--sample",
    type=Parsed("share", _share),
    metavar="2%",
    help="Read only this share of the records, in whole windows chosen at random.",
)
@option("--seed", type=Count(0), metavar="N", help="With --sample: choose the windows of an earlier audit again.")
@option("--counts", is_flag=True, help="Read no record: compare offsets and counts, in seconds for a whole estate.")
@option("--compare", is_flag=True, help="Compare two flows from one source: FLOW FLOW, control and candidate.")
@option("--follow", is_flag=True, help="Audit again and again, until Ctrl-C: what the tree declares with `audit`.")
@option("--every", type=Duration(1), default="1h", help="With --follow: time between two audits.")
@option("--show-values", is_flag=True, help="Print values of records that differ, secrets masked.")
@option("--repair-plan", is_flag=True, help="Print the commands that would replay what is missing; write nothing.")
@spark_option
@store_option("Folder or URI of the tables, for those of audits and losses.")
@option("--page", type=OUTPUT_FILE, help="Write a page (one HTML file) too.")
@output_in("text", "json", "markdown")
@click.pass_obj
def audit(
    workspace: Workspace,
    names: tuple[str, ...],
    since_ms: int | None,
    until_ms: int | None,
    partitions: tuple[int, ...],
    sample: float | None,
    seed: int | None,
    counts: bool,
    compare: bool,
    follow: bool,
    every: float,
    show_values: bool,
    repair_plan: bool,
    spark: bool | None,
    store: Path,
    page: Path | None,
    output: str,
) -> int:
    """Compare every record of FLOWS or TOPICS with its mirror.

    Reads both logs up to the flow's stored offset and compares key, value, timestamp and headers, record by record:
    what is missing, duplicated, altered, reordered or extra is named with the offsets on both sides. What retention
    deleted, what was created again and what cannot be read is "not judged", never "equal"; what the config explains
    (a transformation that drops or alters) is counted apart. Only hashes of keys are shown.

    An audit is kept in the table `audits` of the store, and what differs in the ledger of `mm2mgr losses`. --counts and
    --compare are not kept. With --follow, flows that declare `audit: 2%` in the tree are sampled at every interval; of
    several processes with the same owner one does so.

    \b
    Example:
      mm2mgr audit logging --since 2h
      mm2mgr audit app.orders --partition 3 --since 2026-11-26T10:00 --until 2026-11-26T11:00 --show-values
      mm2mgr audit --counts
      mm2mgr audit --follow --every 1h
    """
    options = operations.AuditOptions(
        partitions=partitions,
        since_ms=since_ms,
        until_ms=until_ms,
        sample=sample,
        seed=seed,
        show_values=show_values,
        spark=spark,
        counts=counts,
    )
    _check_usage(names, options, compare=compare, follow=follow, page=page, repair_plan=repair_plan)
    if follow:
        return _follow(workspace, names, options, every, store, output)
    from mm2mgr.output.console import talk

    with _progress("reading Connect and Kafka") as progress, invalid_arguments():
        if compare:
            report = _compare(workspace, names, options, progress)
        else:
            report = operations.audit(workspace, names, options, progress)
    if not counts:
        talk(f"compared {report.engine}")
    warnings = [] if counts or compare else operations.record_audit(workspace, report, store=store)
    try:
        if page:
            _write_page(workspace, report, page, store)
    finally:
        _say(report, warnings, output, operations.repair_plan(report) if repair_plan else None)
    return report.exit_code


@command("Every day", 11)
@click.argument("topic")
@option(
    "--last", "count", type=Count(1), default=5, show_default=True, metavar="N", help="So many records, 1000 at most."
)
@option(
    "--since", "since_ms", type=_MOMENT, metavar="TIME|2h", help="The first ones with this timestamp or a later one."
)
@option("--offset", type=Count(0), metavar="N", help="The first ones from this offset on.")
@option(
    "--partition", "partitions", type=Count(0), multiple=True, metavar="N", help="Only this partition (repeatable)."
)
@option("--key", metavar="TEXT", help="Only records with this key, among 10 000 offsets of each partition.")
@option("--show-values", is_flag=True, help="Print keys and values, secrets masked.")
@output_option
@click.pass_obj
def records(
    workspace: Workspace,
    topic: str,
    count: int,
    since_ms: int | None,
    offset: int | None,
    partitions: tuple[int, ...],
    key: str | None,
    show_values: bool,
    output: str,
) -> int:
    """Show the newest records of TOPIC, each beside its mirror.

    TOPIC is a name on a source, or that of its mirror. For each flow that takes it the records are looked for on the
    target: the offsets of equal ones, "not yet" for what the flow has not stored, "not found", or what differs. Of two
    equal records with a single mirror the second is "not found". Nothing is committed. Of keys and values only the
    sizes are shown.

    \b
    Example:
      mm2mgr records app.orders
      mm2mgr records app.orders --partition 3 --offset 1200 --last 10
      mm2mgr records app.orders --key order-17 --since 2h --show-values
    """
    from mm2mgr.output.audit_text import say_records
    from mm2mgr.output.console import say_as

    if offset is not None and since_ms is not None:
        raise click.UsageError("--offset and --since both say where to begin: give one of them")
    options = operations.RecordsOptions(partitions, offset, since_ms, key, count, show_values)
    with reading(workspace), invalid_arguments():
        shown = operations.records(workspace, topic, options)
    say_as(output, shown, say_records)
    return max(flow.exit_code for flow in shown)


def _compare(
    workspace: Workspace,
    names: tuple[str, ...],
    options: AuditOptions,
    progress: Callable[[AuditProgress], None],
) -> AuditReport:
    first, second = names
    try:
        return operations.audit_compare(workspace, first, second, options, progress)
    except InvalidArgument as error:
        if error.argument not in ("first", "second"):
            raise
        raise click.UsageError(f"--compare: {error.message}") from error


def _check_usage(
    names: tuple[str, ...], options: AuditOptions, *, compare: bool, follow: bool, page: Path | None, repair_plan: bool
) -> None:
    counts, is_bounded = options.counts, options.since_ms is not None or options.sample is not None
    whole = "name flows or topics; for the whole estate --counts, --since 2h or --sample 2%"
    wrong = {
        "--compare takes two flows": compare and len(names) != 2,
        "--compare, --follow and --counts exclude each other": compare + follow + counts > 1,
        f"every record of every flow would be read: {whole}": not (names or follow or counts or is_bounded),
        "--counts reads no record: no --show-values, and no --repair-plan, which would be a guess": (
            counts and (options.show_values or repair_plan)
        ),
        "--seed needs --sample": options.seed is not None and options.sample is None,
        "--follow chooses its windows itself: no --since, --until, --page or --repair-plan": follow
        and (options.since_ms is not None or options.until_ms is not None or bool(page) or repair_plan),
    }
    for complaint, is_wrong in wrong.items():
        if is_wrong:
            raise click.UsageError(complaint)


@contextmanager
def _progress(text: str) -> Iterator[Callable[[AuditProgress], None]]:
    from mm2mgr.output.console import working

    with working(text) as update:

        def tell(progress: AuditProgress) -> None:
            of = f": {progress.records} of {progress.of_records} records" if progress.of_records else ""
            update(f"{progress.doing}{of}")

        yield tell


def _say(report: AuditReport, warnings: list[str], output: str, replays: tuple[Replay, ...] | None) -> None:
    from mm2mgr.output.audit_text import audit_markdown, say_audit, say_repair
    from mm2mgr.output.console import say_json, say_lines
    from mm2mgr.output.status_text import say_warnings

    say_warnings([*report.warnings, *warnings])
    if output == "json":
        say_json(report if replays is None else {**operations.to_json(report), "repair_plan": replays})
        return
    if output == "markdown":
        say_lines(audit_markdown(report))
    else:
        say_audit(report)
    if replays is not None:
        say_repair(replays)


def _write_page(workspace: Workspace, report: AuditReport, page: Path, store: Path) -> None:
    from mm2mgr.output.audit_page import AUDIT_TITLE, DAYS, audit_page

    history = operations.audit_history(workspace, days=DAYS, store=store)
    audited = {flow.flow for flow in report.flows}
    history = replace(history, rows=tuple(row for row in history.rows if row.flow in audited))
    write_html(page, AUDIT_TITLE, lambda origin: audit_page(report, history, origin))


def _follow(
    workspace: Workspace, names: tuple[str, ...], options: AuditOptions, every: float, store: Path, output: str
) -> int:
    from mm2mgr.output.audit_text import say_audit_round
    from mm2mgr.output.console import log_lines, say_json_line, talk

    if names and options.sample is None:
        options = replace(options, sample=_SAMPLE)
    code, log = 0, log_lines("result")
    rounds = operations.follow_audits(workspace, operations.FollowOrder(names, options, every, store))
    try:
        for done in rounds:
            code = done.report.exit_code if done.report else 1 if done.error else code
            if output == "json":
                say_json_line(done)
            else:
                say_audit_round(done, log, full=True)
    except KeyboardInterrupt:
        rounds.close()
    talk("ended")
    return code
