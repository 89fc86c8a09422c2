"""The commands: one function each, about ten lines, importing what it needs when it runs (cold start matters).

Exit codes: 0 done, 1 failed, 2 `plan --detailed-exitcode` with changes, 3 `apply` inconclusive, 70 an error that nobody
expected, 130 interrupted. Wrong usage is 2 too, as click has it.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from pathlib import Path

import click
from click.core import ParameterSource

from mm2mgr import __version__
from mm2mgr.cli.change import apply, plan
from mm2mgr.cli.check import check
from mm2mgr.cli.declare import init, render, schema
from mm2mgr.cli.explain import explain
from mm2mgr.cli.fleet import fleet, simulate
from mm2mgr.cli.interrupts import INTERRUPTED, signals_interrupt
from mm2mgr.cli.lint import lint
from mm2mgr.cli.load import size
from mm2mgr.cli.local import demo, sandbox
from mm2mgr.cli.sample import sample
from mm2mgr.cli.samples import samples
from mm2mgr.cli.throughput import throughput
from mm2mgr.cli.watch import describe, status
from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations.workspace import Workspace
from mm2mgr.output.console import complain, ended, guarded, talk
from mm2mgr.secrets import mask_text
from mm2mgr.text import one_line, visible

UNEXPECTED = 70  # EX_SOFTWARE of sysexits.h
TRACEBACK = "MM2MGR_TRACEBACK"
_LONGEST = 500


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="mm2mgr")
@click.option(
    "--clusters",
    "-f",
    type=click.Path(path_type=Path),
    multiple=True,
    default=("clusters",),
    envvar="MM2MGR_CLUSTERS",
    show_default=True,
    help="The YAML tree: a folder, or files (repeat the option). Or $MM2MGR_CLUSTERS.",
)
@click.option(
    "--templates",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    envvar="MM2MGR_TEMPLATES",
    help="A folder of own connector templates; outranks ./templates and the shipped ones.",
)
@click.pass_context
def cli(context: click.Context, clusters: tuple[Path, ...], templates: Path | None) -> None:
    """The control plane for Apache Kafka MirrorMaker 2.

    Declare clusters and flows in YAML, see the change as a plan, apply it to Kafka Connect, size it from measured
    throughput, and watch that data really arrives.

    \b
    First steps:
      mm2mgr demo                 the whole job on real Kafka, Connect and Spark, on this machine
      mm2mgr init                 a commented clusters/ to start from
      mm2mgr plan                 what would change
    """
    said = {context.get_parameter_source(name) for name in ("clusters", "templates")}
    context.obj = Workspace(clusters, templates, ParameterSource.COMMANDLINE in said)


for command in (
    init,
    schema,
    render,
    explain,
    lint,
    check,
    plan,
    apply,
    status,
    describe,
    sample,
    throughput,
    samples,
    size,
    fleet,
    simulate,
    sandbox,
    demo,
):
    cli.add_command(command)


def main() -> None:
    """Run the command line; what goes wrong is printed as a sentence with its hint, never as a traceback."""
    # An estate is very many small values that all live to the end: looking for garbage among them took a third of the time.
    gc.set_threshold(200_000, 50, 50)
    with guarded():
        code = ended(_outcome())
    sys.exit(code)


def _outcome() -> int:
    """Run the command and return its exit code."""
    try:
        with signals_interrupt():
            code = cli.main(prog_name="mm2mgr", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Abort as abort:
        if isinstance(abort.__cause__, KeyboardInterrupt):
            talk("interrupted", None)
        return INTERRUPTED
    except KeyboardInterrupt:
        talk("interrupted", None)
        return INTERRUPTED
    except click.ClickException as usage:
        _say_usage(usage)
        return usage.exit_code
    except Exception as failure:  # whatever it is, people get a sentence
        error = failure if isinstance(failure, Mm2mgrError) else _as_sentence(failure)
        complain(error.message, error.hint)
        return error.exit_code


def _say_usage(error: click.ClickException) -> None:
    """Print what click says about wrong usage; the arguments that it repeats add no lines of their own."""
    vars(error)["message"] = visible(mask_text(error.message))  # it quotes what was typed, such as a URL
    error.show(file=(text := io.StringIO()))
    for line in text.getvalue().removesuffix("\n").expandtabs().split("\n"):
        talk(line, None)


class _Unexpected(Mm2mgrError):
    """A bug of mm2mgr, or a refusal of the system that nobody thought of."""

    exit_code = UNEXPECTED


def _as_sentence(failure: Exception) -> Mm2mgrError:
    """Return the error that names a missing extra, or the file that the system refused; of anything else its kind and words."""
    from mm2mgr.extras import EXTRA_OF, PackageMissing

    package = (
        (getattr(failure, "name", None) or "").partition(".")[0] if isinstance(failure, ModuleNotFoundError) else ""
    )
    if package in EXTRA_OF:
        return PackageMissing(package)
    if os.environ.get(TRACEBACK):
        import traceback

        for line in "".join(traceback.format_exception(failure)).splitlines():
            talk(mask_text(line), None)
    hint = f"{TRACEBACK}=1 in the environment prints where it happened"
    if isinstance(failure, OSError) and failure.filename and failure.strerror:
        return Mm2mgrError(f"{failure.filename}: {failure.strerror}", hint=f"check this file or folder; {hint}")
    words = one_line(mask_text(str(failure)))[:_LONGEST]
    return _Unexpected(
        f"unexpected {type(failure).__name__}{': ' * bool(words)}{words}", hint=f"{hint}; please report it"
    )
