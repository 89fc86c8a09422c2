"""The commands: one function each, about ten lines, importing what it needs when it runs (cold start matters).

Exit codes: 0 done, 1 failed, 2 `plan --detailed-exitcode` with changes, 3 `apply` inconclusive. Wrong usage is 2 too, as click
has it.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import click
from click.core import ParameterSource

from mm2mgr import __version__
from mm2mgr.cli.change import apply, plan
from mm2mgr.cli.check import check
from mm2mgr.cli.declare import init, render, schema
from mm2mgr.cli.estate import Estate
from mm2mgr.cli.explain import explain
from mm2mgr.cli.fleet import fleet, simulate
from mm2mgr.cli.lint import lint
from mm2mgr.cli.load import sample, size, throughput
from mm2mgr.cli.local import demo, sandbox
from mm2mgr.cli.watch import describe, status
from mm2mgr.errors import Mm2mgrError
from mm2mgr.secrets import mask_text


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
    context.obj = Estate(clusters, templates, ParameterSource.COMMANDLINE in said)


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
    size,
    fleet,
    simulate,
    sandbox,
    demo,
):
    cli.add_command(command)


def main() -> None:
    """Run the command line; errors people can meet are printed with their hint, never as a traceback."""
    # An estate is very many small values that all live to the end: looking for garbage among them took a third of the time.
    gc.set_threshold(200_000, 50, 50)
    try:
        code = cli.main(prog_name="mm2mgr", standalone_mode=False)
    except (Mm2mgrError, ModuleNotFoundError) as failure:
        from mm2mgr.output.console import complain

        error = failure if isinstance(failure, Mm2mgrError) else _missing(failure)
        complain(error.message, error.hint)
        code = error.exit_code
    except click.exceptions.Abort:
        code = 130
    except click.ClickException as error:
        vars(error)["message"] = mask_text(error.message)  # it quotes what was typed, such as a URL
        error.show()
        code = error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        code = 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


def _missing(failure: ModuleNotFoundError) -> Mm2mgrError:
    """Return the error that names the extra of a package; any other module that is not found is a bug."""
    from mm2mgr.extras import EXTRA_OF, PackageMissing

    package = (failure.name or "").partition(".")[0]
    if package not in EXTRA_OF:
        raise failure
    return PackageMissing(package)
