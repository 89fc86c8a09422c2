"""The command line: options, words and exit codes, in a module per family of commands; `mm2mgr.operations` works.

Every module of this folder is imported here, and its commands put themselves into `--help` with `@command`. What a
command needs it imports when it runs, because cold start matters. Exit codes are those of `errors.ExitCode`.
"""

from __future__ import annotations

import gc
import io
import os
import re
import sys
from importlib import import_module
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from pkgutil import iter_modules

import click
from click.core import ParameterSource

from mm2mgr import __version__
from mm2mgr.cli.completion import prepare_completion, with_names
from mm2mgr.cli.interrupts import signals_interrupt
from mm2mgr.cli.options import COMMANDS
from mm2mgr.errors import ExitCode, Mm2mgrError
from mm2mgr.operations.workspace import Workspace
from mm2mgr.output.console import complain, final_exit_code, guard_streams, talk
from mm2mgr.text import one_line, visible

TRACEBACK = "MM2MGR_TRACEBACK"
_LONGEST = 500


class _Commands(click.Group):
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, self.commands))
        for title, commands in COMMANDS.items():
            with formatter.section(title):
                rows = [(f"{command.name:{widest}}", command.get_short_help_str(limit=200)) for _, command in commands]
                formatter.write_dl(rows)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="mm2mgr")
@click.option(
    "--clusters",
    "-f",
    type=click.Path(path_type=Path),
    multiple=True,
    default=("clusters",),
    envvar="MM2MGR_CLUSTERS",
    show_default=True,
    help="The YAML tree: a folder, or files (repeatable). Or $MM2MGR_CLUSTERS.",
)
@click.option(
    "--templates",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    envvar="MM2MGR_TEMPLATES",
    help="Folder of your own connector templates, used before ./templates and the shipped ones.",
)
@click.pass_context
def cli(context: click.Context, clusters: tuple[Path, ...], templates: Path | None) -> None:
    """The control plane for Apache Kafka MirrorMaker 2.

    Declare clusters and flows in YAML, review the change as a plan, apply it to Kafka Connect, size it from measured
    throughput, and check that records arrive.
    """
    sources = {context.get_parameter_source(name) for name in ("clusters", "templates")}
    context.obj = Workspace(clusters, templates, ParameterSource.COMMANDLINE in sources)


for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
for _section in COMMANDS.values():
    _section.sort(key=itemgetter(0))
    for _, _command in _section:
        cli.add_command(with_names(_command))


def prepare_process() -> None:
    """Set what holds for a process that is mm2mgr's own, and so never for a program that imports mm2mgr.

    Python looks for garbage rarely: among the very many small values of a tree or of a look, that took a third of the
    time. What runs on and on does it after each round. An import fails at once that httpcore tries several times
    in each request, and no plugin of pydantic is looked for among all that is installed.
    """
    gc.set_threshold(200_000, 50, 50)
    gc.enable()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if find_spec("sniffio") is None:
        sys.modules["sniffio"] = None  # type: ignore[assignment]


def main() -> None:
    """Run the command line. Errors are printed as a sentence with a hint, never as a traceback."""
    prepare_process()
    with guard_streams():
        code = final_exit_code(_outcome())
    gc.freeze()  # what is left goes with the process: Python would look through all of it once more
    sys.exit(code)


def _outcome() -> int:
    prepare_completion()
    try:
        with signals_interrupt():
            code = cli.main(prog_name="mm2mgr", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Abort as abort:
        if isinstance(abort.__cause__, KeyboardInterrupt):
            talk("interrupted", None)
        return ExitCode.INTERRUPTED
    except KeyboardInterrupt:
        talk("interrupted", None)
        return ExitCode.INTERRUPTED
    except click.ClickException as usage:
        _say_usage(usage)
        return ExitCode.USAGE if isinstance(usage, click.UsageError) else usage.exit_code
    except Exception as failure:  # users get a sentence, whatever it is
        error = failure if isinstance(failure, Mm2mgrError) else _as_sentence(failure)
        complain(error.message, error.hint)
        return error.exit_code


_JSON = (("--output", "write -o json"), ("-o", "write -o json"))
_DASHBOARD = (("--dashboard", "write --dashboard"),)
_ELSEWHERE = {
    **dict.fromkeys(("--json", "--output-json", "--format"), _JSON),
    **dict.fromkeys(("--grafana", "--grafana-dashboard"), _DASHBOARD),
    **dict.fromkeys(("--auto-approve", "--force", "--assume-yes", "--no-input"), (("--yes", "write --yes"),)),
    **dict.fromkeys(("--target", "--only", "--connector"), (("--flow", "write --flow FLOW"),)),
    **dict.fromkeys(("--selector", "-l"), (("--label", "write --label KEY=VALUE"),)),
    "--dry-run": (
        ("--rollback", "mm2mgr plan shows what it would do"),
        ("--from-group", "it shows what it would write, and asks"),
    ),
    "--replace": (("--rollback", "write mm2mgr restart FLOW"),),
    "--refresh-only": (("--detailed-exitcode", "write mm2mgr drift"),),
    "--destroy": (("--detailed-exitcode", "take it out of the tree, then mm2mgr plan --prune"),),
}
"""Options of other tools, each with what to write where a command has such an option."""
_COMMANDS_ELSEWHERE = {
    **dict.fromkeys(("diff", "refresh"), "write mm2mgr plan, which reads the clusters anew each time"),
    "validate": "write mm2mgr lint",
    **dict.fromkeys(("get", "list", "ls", "state", "connectors", "tasks"), "write mm2mgr status"),
    "show": "write mm2mgr describe FLOW, or mm2mgr plan --show FILE",
    **dict.fromkeys(
        ("destroy", "delete", "remove", "rm"), "take it out of the tree, then mm2mgr plan --prune and apply --prune"
    ),
    **dict.fromkeys(("create", "edit", "patch", "set"), "change the tree, then mm2mgr plan and mm2mgr apply"),
    **dict.fromkeys(("graph", "topology"), "mm2mgr serve draws the estate on its first page"),
    "taint": "write mm2mgr restart FLOW",
    **dict.fromkeys(("workspace", "context", "config"), "name the tree: mm2mgr --clusters FOLDER … or MM2MGR_CLUSTERS"),
    **dict.fromkeys(("consume", "browse", "tail"), "write mm2mgr records TOPIC"),
    **dict.fromkeys(("search", "find"), "write mm2mgr who TOPIC"),
    **dict.fromkeys(("consumer-groups", "consumers", "consumergroups"), "write mm2mgr groups"),
    **dict.fromkeys(("health", "doctor"), "write mm2mgr check, or mm2mgr status"),
    "reset": "write mm2mgr offsets reset FLOW",
}
"""Commands of other tools, each with what does that here."""
_NO_COMMAND = re.compile(r"No such command '([^']*)'\.?")
_SAVE_TASKS = ("plan", "apply", "reconcile", "size")
_NOW = "it is in the tree now: write"


def _in_the_tree(of_tasks: str, of_balance: str) -> dict[str, str]:
    """Return by command what to write in the tree instead of an option: under `tasks`, or `balance`."""
    words = dict.fromkeys(_SAVE_TASKS, f"{_NOW} `tasks: {{{of_tasks}}}` for a flow")
    return {**words, "rebalance": f"{_NOW} `balance: {{{of_balance}}}` for a flow"}


_GONE = {
    "--mirror-again": dict.fromkeys(("plan", "apply", "reconcile"), "write --allow mirror-again"),
    "--ack": {"status": "write mm2mgr losses --ack ID"},
    "--watchdog": {"serve": "write --with watch"},
    "--cool-down": _in_the_tree("cool_down: 1d", "cool_down: 1h"),
    "--off-peak": _in_the_tree("off_peak: 22-5", "windows: 22-5"),
    "--move-budget": {
        **dict.fromkeys(_SAVE_TASKS, f"{_NOW} `defaults: {{move_budget: 40}}`"),
        "rebalance": f"{_NOW} `balance: {{rounds_per_day: 1}}` for a flow, "
        "or `defaults: {move_budget: 40}` for `size`",
    },
}
"""Options that are gone: by command, what to write instead."""


def _say_usage(error: click.ClickException) -> None:
    from mm2mgr.secrets import mask_text

    message = error.message
    if isinstance(error, click.NoSuchOption) and error.ctx and error.option_name in {"-f", "--clusters", "--templates"}:
        message = f"{error.option_name} goes before the command: mm2mgr {error.option_name} … {error.ctx.info_name}"
    elif isinstance(error, click.NoSuchOption) and error.ctx:
        known_options = {name for option in error.ctx.command.params for name in option.opts}
        hints = (words for needed, words in _ELSEWHERE.get(error.option_name, ()) if needed in known_options)
        if instead := _GONE.get(error.option_name, {}).get(error.ctx.info_name or ""):
            message = f"{error.option_name} is gone; {instead}"
            vars(error)["possibilities"] = None
        elif hint := next(hints, ""):
            message = f"{message.removesuffix('.')}; {hint}"
            vars(error)["possibilities"] = None
    elif (
        isinstance(error, click.UsageError)
        and error.ctx
        and error.ctx.parent is None
        and (missing := _NO_COMMAND.match(message))
        and (hint := _COMMANDS_ELSEWHERE.get(missing[1], ""))
    ):
        message = f"No such command '{missing[1]}'; {hint}"
        vars(error)["possibilities"] = None
    vars(error)["message"] = visible(mask_text(message))  # it quotes what was typed, such as a URL
    error.show(file=(text := io.StringIO()))
    for line in text.getvalue().removesuffix("\n").expandtabs().split("\n"):
        talk(line, None)


class _Unexpected(Mm2mgrError):
    """A bug of mm2mgr, or a refusal of the operating system that no code foresees."""

    exit_code = ExitCode.BUG


def _as_sentence(failure: Exception) -> Mm2mgrError:
    from mm2mgr.errors import PackageMissing, missing_extra
    from mm2mgr.files import locked_working_folder
    from mm2mgr.secrets import mask_text

    if isinstance(failure, ModuleNotFoundError) and missing_extra(failure):
        return PackageMissing((failure.name or "").partition(".")[0])
    if os.environ.get(TRACEBACK):
        import traceback

        for line in "".join(traceback.format_exception(failure)).splitlines():
            talk(mask_text(line), None)
    hint = f"{TRACEBACK}=1 in the environment prints where it happened"
    if isinstance(failure, OSError) and failure.filename and failure.strerror:
        if locked := locked_working_folder(str(failure.filename), failure):
            return locked
        return Mm2mgrError(f"{failure.filename}: {failure.strerror}", hint=f"check this file or folder; {hint}")
    words = one_line(mask_text(str(failure)))[:_LONGEST]
    return _Unexpected(
        f"unexpected {type(failure).__name__}{': ' * bool(words)}{words}", hint=f"{hint}; please report it"
    )
