"""What several commands share: the sections of `--help`, options and parameter types, and the page that `--page`
writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import click

from mm2mgr.errors import ExitCode, InvalidArgument, Mm2mgrError, exit_codes
from mm2mgr.metric_sources import METRIC_SOURCES
from mm2mgr.operations.workspace import DEFAULT_STORE

if TYPE_CHECKING:
    from mm2mgr.operations import FleetReport, FlowView, OtherLine, Statistic
    from mm2mgr.operations.workspace import Workspace

LEAST_SECONDS = 0.001
Decorated = TypeVar("Decorated", bound=Callable[..., object])
Look = TypeVar("Look")
Listed = TypeVar("Listed", bound=click.Command)
OUTCOME_CODES = {
    "done": ExitCode.YES,
    "standby": ExitCode.YES,
    "failed": ExitCode.NO,
    "changes": ExitCode.DIFFERS,
    "inconclusive": ExitCode.LOOK,
}
Section = Literal["First hour", "Every change", "Load", "Every day"]
COMMANDS: dict[Section, list[tuple[int, click.Command]]] = {section: [] for section in get_args(Section)}
"""The commands in the sections of `--help`, each with its place there."""


def in_help(section: Section, place: int) -> Callable[[Listed], Listed]:
    """Add a command to mm2mgr, such as a group of others, and show it at this place of a section of `--help`."""

    def add(command: Listed) -> Listed:
        COMMANDS[section].append((place, command))
        return command

    return add


class Command(click.Command):
    """A command whose help ends with its exit codes."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        path = ctx.command_path.partition(" ")[2]
        with formatter.section("Exit codes"):
            formatter.write_dl([(f"{code:<3}", text) for code, text in exit_codes(path).items()])


class CommandGroup(click.Group):
    """A command that has others below it."""

    command_class = Command
    group_class = type


def command(section: Section, place: int) -> Callable[[Callable[..., object]], click.Command]:
    """Make a function a command of mm2mgr, shown at this place of a section of `--help`."""
    return lambda function: in_help(section, place)(click.command(cls=Command)(function))


def option(*names: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """Declare an option; the default of one that is no flag is shown in its help."""
    return click.option(*names, **{"show_default": not settings.get("is_flag"), **settings})


def with_options(command: Decorated, *options: Callable[[Decorated], Decorated]) -> Decorated:
    """Add options, which `--help` lists in this order."""
    for add in reversed(options):
        command = add(command)
    return command


def output_in(*formats: str) -> Callable[[Decorated], Decorated]:
    """Return `-o` with these formats, the first by default."""
    return option("--output", "-o", type=click.Choice(formats), default=formats[0], help="Result format.")


def output_option(command: Decorated) -> Decorated:
    """Add `-o text|json`."""
    return output_in("text", "json")(command)


def reason_option(command: Decorated) -> Decorated:
    """Add `--reason TEXT`, which the history keeps."""
    help = "Why; kept in the history (`mm2mgr history`)."
    return option("--reason", default="", show_default=False, metavar="TEXT", help=help)(command)


class OutputFile(click.Path):
    """A file to write. `-` is refused: standard output has the command's own text, and nobody means a file of that
    name."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, dir_okay=False)

    def convert(self, value: str | PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if value == "-":
            self.fail("name a file: /dev/stdout is standard output, ./- a file called -", param, ctx)
        return Path(str(super().convert(value, param, ctx)))


FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
OUTPUT_FILE = OutputFile()
"""Shared by the commands: click asks gettext for the name of each type that is made, a tenth of `--help`."""


def events_option(command: Decorated) -> Decorated:
    """Add `--events FILE`."""
    return option("--events", type=OUTPUT_FILE, help="Append what happens to a file, as JSON lines, while it happens.")(
        command
    )


def snapshot_option(command: Callable[..., int]) -> Callable[..., int]:
    """Add `--snapshot FILE` to a command that gets the workspace: with it, the workspace answers for the clusters."""

    @wraps(command)
    def run(workspace: Workspace, *arguments: object, snapshot: Path | None, **options: object) -> int:
        return command(workspace.of_snapshot(snapshot) if snapshot else workspace, *arguments, **options)

    help_text = "Answer from this file of `mm2mgr snapshot`; no cluster is asked."
    return option("--snapshot", type=FILE, metavar="FILE", help=help_text)(run)


class Number(click.FloatRange):
    """A finite number in a range: click accepts nan in every range, and infinity in open ones."""

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} should be a number, such as 5 or 0.5", param, ctx)
        super().convert(number, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


class Count(click.IntRange):
    """A whole number in a range."""

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} should be a whole number", param, ctx)
        if self.min is not None and number < self.min:
            self.fail(f"{number} should be at least {self.min}", param, ctx)
        if self.max is not None and number > self.max:
            self.fail(f"{number} should be at most {self.max}", param, ctx)
        return number


class Parsed(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.4 on
    """What a function makes of a text; the message of its ValueError follows the text."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)


class Quantity(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.4 on
    """A number with a unit, as the tree has it, from `least` to `most`."""

    parser: str
    bare_unit: tuple[str, ...] = ()
    unit = ""

    def __init__(self, least: float = 0.0, most: float = math.inf) -> None:
        self.least, self.most = least, most

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from mm2mgr.spec import scalars

        try:
            number = value if isinstance(value, float) else float(getattr(scalars, self.parser)(value, *self.bare_unit))
        except ValueError as error:
            self.fail(f"{value!r} should be {error}", param, ctx)
        if number < self.least:
            self.fail(f"{value!r} is less than {self.least:g}{self.unit}", param, ctx)
        if number > self.most:
            self.fail(f"{value!r} is more than {self.most:g}{self.unit}", param, ctx)
        return number


class DurationWithUnit(Quantity):
    """A duration in seconds, such as 80ms or 7d, of which a bare number could mean something else or delete too
    much."""

    name = "duration"
    parser = "duration_seconds"
    unit = "s"


class Duration(DurationWithUnit):
    """A duration in seconds, such as 5, 5s, 10min or 7d."""

    bare_unit = ("s",)


class Since(Duration):
    """How many seconds ago: a duration such as 7d, or a date or time (UTC without a zone) such as 2026-11-20."""

    name = "duration or date"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if not isinstance(value, str) or value[4:5] != "-":
            try:
                return super().convert(value, param, ctx)
            except click.BadParameter as error:
                self.fail(f"{error.message}, or a date or time such as 2026-11-20T14:00Z", param, ctx)
        try:
            at = datetime.fromisoformat(value)
            seconds = (datetime.now(UTC) - (at if at.tzinfo else at.replace(tzinfo=UTC))).total_seconds()
        except (ValueError, OverflowError):
            self.fail(f"{value!r} should be a date such as 2026-11-20 or a time such as 2026-11-20T14:00Z", param, ctx)
        if seconds < 0:
            now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
            self.fail(f"{value!r} lies ahead: it is {now} now, by the clock of this machine", param, ctx)
        return seconds


class Rate(Quantity):
    """A bandwidth such as 1Gbit/s, in bytes per second."""

    name = "rate"
    parser = "bytes_per_second"
    unit = " B/s"


class Size(Quantity):
    """An amount of data such as 200 MB, in bytes."""

    name = "size"
    parser = "byte_size"
    unit = " B"


class StoreLocation(click.Path):
    """A folder, or a URI of object storage without credentials in it."""

    name = "folder or URI"

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(
        self, value: str | PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Path | str:
        from mm2mgr.operations import store_of

        try:
            store = store_of(str(value))
        except ValueError as error:
            self.fail(f"it {error}", param, ctx)
        return Path(str(super().convert(value, param, ctx))) if isinstance(store, Path) else store


def store_option(help: str) -> Callable[[Decorated], Decorated]:
    """Return `--store` with its help."""
    return option("--store", type=StoreLocation(), default=DEFAULT_STORE, help=help)


def spark_option(command: Decorated) -> Decorated:
    """Add `--spark/--no-spark`; neither: what `Workspace.engine` chooses."""
    help = (
        "Where to compute. Default: on Spark where it, Java 17+ and 2.5 GiB are found. MM2MGR_SPARK=off turns it off."
    )
    return option("--spark/--no-spark", default=None, help=help)(command)


def window_option(such_as: str, default: str) -> Callable[[Decorated], Decorated]:
    """Return `--window` with an example and what it means when it is not given."""
    help = f"Only the newest hours, such as {such_as} (whole hours). Default: {default}."
    return option("--window", type=Duration(LEAST_SECONDS), help=help)


def folder_option(default: str, help: str) -> Callable[[Decorated], Decorated]:
    """Return `--dir` with its default and help."""
    return option("--dir", "directory", type=FOLDER, default=Path(default), help=help)


def evidence_options(function: Callable[..., object]) -> Callable[..., object]:
    """Give a command what `size`, `fleet` and `simulate` plan with, as its argument `evidence`."""
    help = "Load of a task to plan with: p95 lets it exceed the usable capacity in 5 % of the hours."
    options = (
        store_option("Folder or URI of the tables, rolled up."),
        window_option("7d", "4 weeks"),
        option("--by", "statistic", type=click.Choice(["mean", "p50", "p95", "max"]), default="p95", help=help),
    )

    @wraps(function)
    def command(*values: object, store: Path, window: float | None, statistic: Statistic, **more: object) -> object:
        from mm2mgr.operations import EvidenceOptions
        from mm2mgr.output.console import talk

        evidence = EvidenceOptions(store, window, statistic, views=more.get("page") is not None, notify=talk)
        return function(*values, evidence=evidence, **more)

    return with_options(command, *options)


def _kind(text: str) -> str:
    from mm2mgr.operations import KINDS

    if text not in KINDS:
        raise ValueError(f"is not one of {', '.join(KINDS)}")
    return text


def change_options(function: Callable[..., object]) -> Callable[..., object]:
    """Give a command the options that `plan`, `apply` and `reconcile` share, as its argument `options`."""
    options = (
        option("--flow", "only_flows", multiple=True, help="Only this flow: id, pair or name (repeatable)."),
        option("--prune", is_flag=True, help="Also delete owned connectors that are no longer declared."),
        option(
            "--allow",
            multiple=True,
            type=Parsed("kind", _kind),
            help="Write a costly kind of change (repeatable): mirror-again (records arrive a second time), "
            "target-names (topics get other names on the target), names-taken (which have records there already), "
            "deletes (any number), tasks-per-worker (more tasks than the workers are declared to carry). A flow may "
            "carry the first three as `allow: [KIND]`.",
        ),
        option(
            "--allow-deletes",
            type=Count(min=0),
            default=0,
            show_default=False,
            metavar="N",
            help="Let --prune delete up to N connectors, where that is more than half of this owner's, or more than 10 "
            "and more than 20 %.",
        ),
        option(
            "--max-changes",
            type=Count(min=0),
            metavar="N",
            help="Write nothing where there are more changes than this.",
        ),
    )

    @wraps(function)
    def command(
        *values: object,
        only_flows: tuple[str, ...],
        prune: bool,
        allow: tuple[str, ...],
        allow_deletes: int,
        max_changes: int | None,
        **more: object,
    ) -> object:
        from mm2mgr.operations import PlanOptions

        chosen = PlanOptions(only_flows, prune, allow, allow_deletes, max_changes)
        return function(*values, options=chosen, **more)

    return with_options(command, *options)


def sample_options(function: Callable[..., object]) -> Callable[..., object]:
    """Give a command the options that `sample` and `serve` share, as its argument `sampling`: an order for a store that
    the command names, without an end."""
    past = " or ".join(kind.past for kind in METRIC_SOURCES if kind.past)
    options = (
        option("--interval", type=Duration(LEAST_SECONDS), default="30s", help="Time between two samples."),
        option("--cluster", "aliases", multiple=True, help="Sample only this source cluster (repeatable)."),
        option(
            "--keep",
            type=DurationWithUnit(LEAST_SECONDS),
            help="Remove samples older than this, such as 90d. Default: none.",
        ),
        option(
            "--from",
            "kind",
            type=click.Choice(["kafka", *(kind.name for kind in METRIC_SOURCES)]),
            default="kafka",
            help="Where samples come from; others than Kafka are declared under metrics: of the clusters.",
        ),
        option(
            "--back",
            type=Duration(),
            default="0s",
            show_default=False,
            help=f"How much of the past a first run takes from {past}, such as 24h.",
        ),
        spark_option,
    )

    @wraps(function)
    def command(
        *values: object,
        store: Path | str,
        interval: float,
        aliases: tuple[str, ...],
        keep: float | None,
        kind: str,
        back: float,
        spark: bool | None,
        **more: object,
    ) -> object:
        from mm2mgr.operations.sample import SampleOrder

        sampling = SampleOrder(store, interval, None, aliases, keep, kind, back, spark)
        return function(*values, store=store, sampling=sampling, **more)

    return with_options(command, *options)


def watchdog_options(function: Callable[..., object]) -> Callable[..., object]:
    """Give a command the options that `watch` and `serve` share, as its arguments `order` and `events`."""
    options = (
        option("--dry-run", is_flag=True, help="Change nothing, and take no lease: only say what would be done."),
        option(
            "--freeze-file",
            type=click.Path(path_type=Path),
            help="While this file exists nothing is changed; what FAILED is still reported.",
        ),
        option(
            "--first-wait",
            type=Duration(0),
            default="10s",
            help="Time before the first restart; doubles with each one.",
        ),
        option("--restarts", type=Count(0), default=5, help="Restarts of one task within the window, at most."),
        option("--window", type=Duration(1), default="1h", help="The window for --restarts."),
        reason_option,
        events_option,
    )  # fmt: skip

    @wraps(function)
    def command(
        *values: object,
        dry_run: bool,
        freeze_file: Path | None,
        first_wait: float,
        restarts: int,
        window: float,
        reason: str,
        **more: object,
    ) -> object:
        from mm2mgr.operations import RestartPolicy, WatchOrder

        policy = RestartPolicy(first_wait, restarts=restarts, window_seconds=window)
        order = WatchOrder((), policy, dry_run, freeze_file, reason)
        return function(*values, order=order, **more)

    return with_options(command, *options)


def _label(text: str) -> tuple[str, str]:
    key, equals, label = text.partition("=")
    if not (key and equals):
        raise ValueError("is not a label such as tier=local")
    return key, label


def label_option(command: Decorated) -> Decorated:
    """Add `--label KEY=VALUE`, whose pairs the command gets as `labels`."""
    return option(
        "--label",
        "labels",
        type=Parsed("label", _label),
        multiple=True,
        metavar="KEY=VALUE",
        help="Flows whose source or target has this label, beside those that are named (repeatable; all must match).",
    )(command)


def connector_options(function: Callable[..., object]) -> Callable[..., object]:
    """Give a command the ways to say which connectors are meant, as its argument `choice`."""

    @wraps(function)
    def command(
        *values: object, names: tuple[str, ...], labels: tuple[tuple[str, str], ...], everything: bool, **more: object
    ) -> object:
        from mm2mgr.operations import Choice

        return function(*values, choice=Choice(names, labels, everything), **more)

    return with_options(
        command,
        click.argument("names", nargs=-1),
        label_option,
        option("--all", "everything", is_flag=True, help="Every connector that the tree declares."),
    )


@contextmanager
def invalid_arguments() -> Iterator[None]:
    """Report an argument that an operation refuses as wrong usage of the option with its name."""
    try:
        yield
    except InvalidArgument as error:
        raise click.BadParameter(error.message, param_hint=f"--{error.argument}") from error


def reading(workspace: Workspace, text: str = "reading Connect and Kafka") -> AbstractContextManager[object]:
    """Show that clusters are read, or the snapshot that answers for them."""
    from mm2mgr.output.console import working

    return working("reading the snapshot" if workspace.snapshot else text)


def show_looks(
    workspace: Workspace,
    looks: Iterator[Look],
    show: Callable[[Look], None],
    code_of: Callable[[Look], int],
    *,
    watching: bool,
) -> int:
    """Show one look, or look after look until Ctrl-C where they are watched; return the exit code of the last one."""
    with reading(workspace):
        look = next(looks)
    code = code_of(look)  # before it is printed: an interrupt while it is read means this look
    try:
        while True:
            show(look)
            if not watching:
                return code
            look = next(looks)
            code = code_of(look)
    except KeyboardInterrupt:
        return code


def talk_other_line(event: OtherLine) -> None:
    """Say that a Kafka version is judged by another line."""
    from mm2mgr.output.console import talk

    lines = ", ".join(event.lines)
    talk(f"Kafka {event.version} is none of the known versions ({lines}); judged by {event.judged_by}")


page_option = option("--page", type=OUTPUT_FILE, help="Write a page (one HTML file) too.")


def write_page(path: Path, views: Sequence[FlowView], report: FleetReport | None = None, measured: str = "") -> None:
    """Write the page of loads and sizing. `measured`: which rates it plans with."""
    from mm2mgr.output.page import TITLES, page

    rates = f"; rates: {measured}" if measured else ""
    write_html(path, TITLES, lambda origin: page(views, report, f"{origin}{rates}."))


def write_html(path: Path, title: str, render: Callable[[str], str]) -> None:
    """Write a page; Mm2mgrError where it cannot be written, or another file is there than a page whose title begins so.
    `render` gets when it was written."""
    from mm2mgr.files import FileKind, write_whole
    from mm2mgr.output.console import talk

    if context := click.get_current_context(silent=True):
        workspace: Workspace = context.obj
        workspace.refuse_as_output(path, "--page")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Mm2mgrError(f"{path}: cannot be written: {error.strerror}", hint="name another file") from error
    text = render(f"Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    write_whole(path, text, FileKind("a page", lambda head: f"<title>{title}" in head))
    talk(f"page in {path}")
