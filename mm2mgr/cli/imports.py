"""The command `import`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr import operations
from mm2mgr.cli.options import FILE, FOLDER, command, invalid_arguments, option, output_in
from mm2mgr.errors import ExitCode

if TYPE_CHECKING:
    from mm2mgr.operations.workspace import Workspace


@command("First hour", 3)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", type=click.Path())
@option(
    "--out", type=FOLDER, metavar="DIR", help="Write the tree there: a new or an empty folder. Default: report only."
)
@option("--owner", default="", metavar="NAME", help="Owner of the new tree. Default: that of marks in the sources.")
@option("--kafka", metavar="VERSION", help="Kafka version of the workers. Default: as the sources say, or the newest.")
@option(
    "--connect",
    "connects",
    multiple=True,
    metavar="[NAME=]URL",
    help="REST URL of a Connect cluster (repeatable). NAME is that of a file, a folder or a target; without it, all.",
)
@option(
    "--workers-kafka",
    "kafkas",
    multiple=True,
    metavar="NAME=ALIAS",
    help="Kafka cluster that the workers of a Connect cluster use (repeatable).",
)
@option(
    "--check",
    "tree",
    type=click.Path(path_type=Path),
    metavar="TREE",
    help="Compare this tree with the sources, client by client; nothing is written.",
)
@option("--topics", default="", metavar="LIST", help="Topics of a MirrorMaker 1 whose command is not in the sources.")
@option("--worker", type=FILE, help="With --check: connect-distributed.properties of the workers that run the sources.")
@option(
    "--advise", is_flag=True, help="Also say which flows Cluster Mirroring (KIP-1279) could take, and why others not."
)
@option("--all", "everything", is_flag=True, help="Also list the keys that are kept, and those with Kafka's defaults.")
@output_in("text", "json", "markdown")
@click.pass_obj
def import_(
    workspace: Workspace,
    sources: tuple[str, ...],
    out: Path | None,
    owner: str,
    kafka: str | None,
    connects: tuple[str, ...],
    kafkas: tuple[str, ...],
    tree: Path | None,
    topics: str,
    worker: Path | None,
    advise: bool,
    everything: bool,
    output: str,
) -> int:
    """Turn connectors and mm2.properties that exist into a tree.

    A SOURCE is what `lint` reads: an mm2.properties of dedicated mode, the JSON or properties of connectors, a
    resource of Strimzi, a ConfigMap; or a folder of these; or the REST URL of a Connect cluster: all of its mirrors,
    whoever owns them. All together are one estate. The new tree keeps what runs as it behaves, mistakes too, and the
    report says of every key where it went or why it does nothing. Secrets in clear become placeholders. Files contact
    nothing; of a URL its workers are asked, with user and password from $MM2MGR_CONNECT_USER and
    $MM2MGR_CONNECT_PASSWORD, and the brokers that its connectors name for their cluster id. Nothing is changed there;
    --out is written whole or not at all.

    With --check nothing is imported: every client of every connector has to get from TREE what it effectively gets
    from the sources, with the defaults of the workers' version and what their override policy lets through. Each
    difference is named. With --out the new tree is checked at once.

    \b
    Example:
      mm2mgr import mm2.properties --owner data-platform --out clusters
      mm2mgr import connectors/ --owner data-platform --connect east=http://connect-e1:8083 --out clusters
      mm2mgr import mm2.properties --owner data-platform -o markdown > report.md
      mm2mgr import http://connect-e1:8083 http://connect-w1:8083 --owner data-platform --out clusters
      mm2mgr import mm2.properties --check clusters --kafka 3.9
    """
    from mm2mgr.output.console import say_as, say_lines, talk
    from mm2mgr.output.import_check_text import say_equivalence, verdict
    from mm2mgr.output.import_text import import_markdown, say_import

    if tree is not None:
        if out is not None:
            raise click.UsageError("--check writes nothing: leave out --out, which checks the new tree by itself")
        if output == "markdown":
            raise click.UsageError("--check has -o text and -o json")
        with invalid_arguments():
            options_of_check = operations.ImportCheck(kafka, worker, topics)
            result = operations.check_import(replace(workspace, files=(tree,)), sources, options_of_check)
        say_as(output, result, say_equivalence)
        return _CHECK_CODES[result.outcome]
    if worker is not None:
        raise click.UsageError("--worker needs --check")

    homes = dict(_pairs(kafkas, "--workers-kafka"))
    options = operations.ImportOptions(owner, kafka, _urls(connects), homes, templates=workspace.templates)
    with invalid_arguments():
        imported = operations.import_sources(sources, options, out, topics=topics, with_advice=advise)
    if output == "markdown":
        say_lines(import_markdown(imported))
    else:
        say_as(output, imported, lambda value: say_import(value, everything=everything))
    if out is not None:
        options_of_check = operations.ImportCheck(kafka, assume_newest=True)
        result = operations.check_import(replace(workspace, files=(out,)), imported.inputs, options_of_check)
        talk(f"checked: {verdict(result)}; see mm2mgr import … --check {out}")
    return int(ExitCode.LOOK if imported.report.decisions else ExitCode.YES)


_CHECK_CODES = {"equal": ExitCode.YES, "differs": ExitCode.DIFFERS, "open": ExitCode.NO}


import_.name = "import"


def _pairs(texts: tuple[str, ...], name: str) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts]
    for text, (_, sign, value) in zip(texts, pairs, strict=True):
        if not sign or not value:
            raise click.UsageError(f"{name} {text}: write NAME=VALUE")
    return [(key, value) for key, _, value in pairs]


def _urls(texts: tuple[str, ...]) -> dict[str, list[str]]:
    urls: dict[str, list[str]] = {}
    for text in texts:
        name, sign, url = text.partition("=")
        if not sign or "://" in name:
            name, url = "connect", text
        urls.setdefault(name, []).append(url)
    return urls
