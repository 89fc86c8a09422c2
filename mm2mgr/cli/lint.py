"""The commands on files: `lint`, `explain`, `render`, `init`, `schema` and `rules`."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from mm2mgr import operations
from mm2mgr.cli.options import (
    FILE,
    FOLDER,
    LEAST_SECONDS,
    Count,
    Duration,
    DurationWithUnit,
    Rate,
    command,
    invalid_arguments,
    option,
    output_option,
    snapshot_option,
    talk_other_line,
)
from mm2mgr.errors import ExitCode, absolute_url
from mm2mgr.operations.workspace import Workspace
from mm2mgr.text import number_of

if TYPE_CHECKING:
    from mm2mgr.operations import ExportFormat, Severity, StrimziApi


@command("Every change", 2)
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path))
@option(
    "--connect", "connects", multiple=True, metavar="URL|NAME", help="All connectors there, owned or not (repeatable)."
)
@option("--kafka", metavar="VERSION", help="Kafka version of the workers, instead of the detected one.")
@option("--worker", type=FILE, help="connect-distributed.properties of the workers that run FILEs.")
@option(
    "--rtt",
    type=DurationWithUnit(),
    metavar="80ms",
    help="Round trip between source and target, where no link is declared.",
)
@option("--bandwidth", type=Rate(), metavar="1Gbit/s", help="Bandwidth of the same link; needs --rtt.")
@option("--brokers", type=Count(1), help="Brokers per Kafka cluster, where unknown.")
@option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info", "never"]),
    default="error",
    help="Fail for findings of this severity or worse.",
)
@option("--ignore", "ignored", multiple=True, metavar="RULE", help="Leave this rule out (repeatable).")
@option("--all", "everything", is_flag=True, help="Also show silenced findings, with the reason.")
@option("--fix", is_flag=True, help="Show what all fixes that a machine can apply change in FILEs or the tree.")
@option("--yes", "-y", is_flag=True, help="With --fix: write it.")
@option("--rules", is_flag=True, help="Only list the rules.")
@option(
    "--ask-brokers/--no-ask-brokers",
    default=True,
    help="With --connect: ask the brokers that connectors name for their cluster id.",
)
@option("--timeout", type=Duration(LEAST_SECONDS), default="30s", help="Time limit per Connect cluster.")
@option("--output", "-o", type=click.Choice(["text", "json", "sarif"]), default="text", help="Result format.")
@option(
    "--rule-pages",
    metavar="URL",
    default="",
    help="With -o sarif: where your copy of docs/reference/rules/ is served, for `helpUri` and `informationUri`.",
)
@click.pass_obj
@snapshot_option
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
    fix: bool,
    yes: bool,
    rules: bool,
    ask_brokers: bool,
    timeout: float,
    output: str,
    rule_pages: str,
) -> int:
    """Find settings that do nothing or cause trouble, with the fix.

    Checks the tree, or FILEs, or Connect clusters. A FILE is a connector's JSON or properties, a dedicated
    mm2.properties, a resource of Strimzi or Confluent's operator, Terraform (HCL, state, `terraform show -json`), what
    holds one of these (a ConfigMap, a chart's values, a compose file, a script), a folder of such files, or a tree.
    All inputs are looked at together, so a loop through several is found. `--connect` takes the name of a Connect
    cluster of the tree, or a URL; the URL's user and password come from $MM2MGR_CONNECT_USER and
    $MM2MGR_CONNECT_PASSWORD.

    A rule is silenced where it is fine, with the reason: `# mm2mgr: silence RULE why` above or on the line, `silence:
    {RULE: why}` on a flow, or the key `mm2mgr.silence.RULE` in a connector. `mm2mgr explain RULE` explains it.

    With --fix, files and tree are linted again after each fix; one that brings another finding is not made. The diff
    is shown, and written with --yes; the exit code is that of the files as they then are. Hints are followed with
    --fail-on info.

    \b
    Example:
      mm2mgr lint
      mm2mgr lint mm2.properties --kafka 3.9 --fail-on warning
      mm2mgr lint mm2.properties --fix --yes
      mm2mgr lint --connect http://connect-e1:8083 -o sarif > lint.sarif
    """
    from mm2mgr.output.console import complain, say_as, say_json
    from mm2mgr.output.lint_text import say_findings, say_fixes, say_rules

    if rules:
        if output == "sarif":
            raise click.UsageError("--rules has -o text and -o json")
        say_as(output, operations.lint_rules(), say_rules)
        return 0
    if bandwidth is not None and rtt is None:
        raise click.UsageError("--bandwidth needs --rtt: the bytes in flight depend on both")
    if yes and not fix:
        raise click.UsageError("--yes needs --fix")
    if fix and (connects or output == "sarif"):
        raise click.UsageError("--fix changes files and shows text or JSON: no --connect, no -o sarif")
    if rule_pages and output != "sarif":
        raise click.UsageError("--rule-pages needs -o sarif")
    options = operations.LintOptions(
        kafka, worker, rtt, bandwidth, brokers, ignored, talk_other_line, connects, ask_brokers, timeout
    )
    with invalid_arguments():
        pages = absolute_url("rule-pages", rule_pages)
        if fix:
            fixes = operations.fix(workspace, files, options, hints=fail_on == "info")
            fixes = fixes.write() if yes else fixes
            say_as(output, fixes, say_fixes)
            return int(fixes.fails(fail_on))
        report = replace(operations.lint(workspace, files, options), shows_silenced=everything)
    if output == "sarif":
        from mm2mgr.output.lint_text import SarifPlaces, sarif

        unread = [error.message for error in report.unread]
        places = SarifPlaces(Path.cwd(), pages)
        say_json(sarif(report.listed_findings, operations.lint_rules(), places, unread, report.not_judged))
    else:
        say_as(output, report, say_findings)
    for error in report.unread:
        complain(error.message, error.hint)
    return int(report.fails(fail_on))


@command("Every change", 3)
@click.argument("name", metavar="KEY|RULE|BUG|FLOW")
@option("--on", metavar="CLASS", help="Connector type (source, checkpoint, heartbeat) or class. Default: all types.")
@option("--kafka", metavar="VERSION", help="Kafka version of the workers. Default: the newest known.")
@option("--all", "everything", is_flag=True, help="For a FLOW: also settings that keep Kafka's defaults.")
@option(
    "--from",
    "files",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File or folder of another tool; NAME is a connector or pair in it (repeatable).",
)
@output_option
@click.pass_obj
def explain(
    workspace: Workspace,
    name: str,
    on: str | None,
    kafka: str | None,
    everything: bool,
    files: tuple[Path, ...],
    output: str,
) -> None:
    """Explain a KEY, a lint RULE, a known BUG, or the clients of a FLOW.

    For a KEY, however it is spelled: what it does, and what to write instead. For a FLOW: the settings of each
    client. Use the id of a flow whose name is also a key or a rule. With --from, the clients of a connector or a pair
    `A->B` that another tool's file declares; it takes what `lint` reads.

    \b
    Example:
      mm2mgr explain producer.batch.size
      mm2mgr explain source.cluster.client.rack --on source --kafka 3.9
      mm2mgr explain wrong-kafka
      mm2mgr explain KAFKA-12468
      mm2mgr explain 'logging:dc1-logging->agg-east'
      mm2mgr explain 'mill->dock' --from mm2.properties
    """
    from mm2mgr.output.console import say_as
    from mm2mgr.output.lint_text import say_explained

    with invalid_arguments():
        options = operations.LintOptions(kafka, report=talk_other_line)
        explained: operations.Explained = (
            operations.explain_files(files, name, options, on=on, everything=everything)
            if files
            else operations.explain(workspace, name, options, on=on, everything=everything)
        )
    say_as(output, explained, say_explained)


@command("Every change", 1)
@click.argument("flows", nargs=-1)
@option("--origins", is_flag=True, help="Show where each value is set: spec line, override, default or template line.")
@option(
    "--format",
    "form",
    type=click.Choice(["json", "strimzi", "strimzi-mirrormaker2", "properties"]),
    help="Write for another tool: bodies of POST /connectors, resources of Strimzi (KafkaConnector, or"
    " KafkaMirrorMaker2), or an mm2.properties.",
)
@option("--out", type=FOLDER, metavar="DIR", help="With --format: write files into this new folder.")
@option(
    "--api",
    type=click.Choice(["v1beta2", "v1"]),
    default="v1beta2",
    help="With a format of Strimzi: version of the resources.",
)
@output_option
@click.pass_obj
def render(
    workspace: Workspace,
    flows: tuple[str, ...],
    origins: bool,
    form: ExportFormat | None,
    out: Path | None,
    api: StrimziApi,
    output: str,
) -> int:
    """Print the connector configs of FLOWS (all by default).

    Secrets are masked, placeholders are not. A flow is named by its id `logging:dc1-logging->agg-east`, its pair, or
    its declared name.

    With --format the connectors are written for another tool, which then runs them. The text is read back, and every
    client must get what the tree gives it; else nothing is written, each setting that the form cannot say is named,
    and the exit code is 1. Secrets have to be placeholders.

    \b
    Example:
      mm2mgr render 'logging:dc1-logging->agg-east' --origins
      mm2mgr render --format strimzi --out connectors
    """
    from mm2mgr.output.console import complain, say_lines, talk

    if form is None:
        if out:
            raise click.UsageError("--out needs --format")
        return _print_configs(workspace, flows, origins, output)
    if origins or output == "json":
        raise click.UsageError("--format has a syntax of its own: leave out --origins and -o json")
    result = operations.export(workspace, flows, form, api)
    for refusal in result.refusals:
        place = f"{refusal.connector}: {refusal.key}".removesuffix(": ")
        complain(f"{place}: {refusal.reason}", refusal.remedy)
    if result.refusals:
        return ExitCode.NO
    if out is None:
        say_lines(result.document)
        return 0
    paths = operations.write_export(result, out)
    talk(f"{number_of(len(paths), 'file')} written to {out}")
    return 0


@command("First hour", 2)
@click.argument("folder", type=FOLDER, default="clusters")
def init(folder: Path) -> None:
    """Write a commented starter tree into FOLDER (default: clusters).

    It says what to do next. Existing files are never overwritten.

    \b
    Example:
      mm2mgr init && mm2mgr render --origins
    """
    from mm2mgr.output.console import say, talk

    for path in operations.init(folder):
        say(str(path))
    tree = "" if folder == Path("clusters") else f"--clusters {shlex.quote(str(folder))} "
    talk("next: write your addresses into clusters.yaml and your topics into flows.yaml; then")
    for words, purpose in (
        ("lint", "what would do nothing or cause trouble; asks no cluster"),
        ("check", "whether the clusters answer, and which rights are missing"),
        ("plan", "what would be created; writes nothing"),
        ("apply", "asks, then creates it"),
    ):
        talk(f"  mm2mgr {tree}{words}".ljust(24 + len(tree)) + f"# {purpose}")
    talk("no clusters at hand: mm2mgr sandbox up starts some on this machine, with a tree of their own")


@command("First hour", 4)
def schema() -> None:
    """Print the JSON Schema of the YAML files, for editors.

    \b
    Example:
      mm2mgr schema > mm2mgr.schema.json
      # first line of each file: # yaml-language-server: $schema=../mm2mgr.schema.json
    """
    from mm2mgr.output.console import say_json

    say_json(operations.schema())


@command("Every day", 16)
@option("--dashboard", is_flag=True, help="Print a dashboard for Grafana instead, as JSON.")
@option("--kubernetes", is_flag=True, help="Print it as a PrometheusRule, or the dashboard as a ConfigMap.")
@option(
    "--runbooks",
    metavar="URL",
    default="",
    help="Where your copy of docs/how-to/something-is-red.md is served: `runbook_url` of each rule leads there.",
)
@click.pass_obj
def rules(workspace: Workspace, dashboard: bool, kubernetes: bool, runbooks: str) -> None:
    """Print alerting rules for Prometheus, or a Grafana dashboard.

    Both read the metrics of `mm2mgr serve` with the owner of this tree, so the trees of several teams can share a
    Prometheus. There is a rule for each kind of problem, for lag above a flow's `max_lag`, for retention that is
    about to overtake a flow, and for `serve` itself. Print them again after an upgrade of mm2mgr, or when the first
    flow gets a `max_lag`. No cluster is asked.

    The `runbook_url` of each rule has the anchor of its alert in docs/how-to/something-is-red.md of mm2mgr's
    repository, or with --runbooks in the copy that you serve.

    \b
    Example:
      mm2mgr rules > mm2mgr.rules.yaml
      mm2mgr rules --runbooks https://wiki.example.net/mirrors/something-is-red.html
      mm2mgr rules --dashboard > mm2mgr.dashboard.json
      mm2mgr rules --kubernetes | kubectl apply -f -
    """
    from mm2mgr.output.console import say_lines

    with invalid_arguments():
        text = operations.rules(workspace, dashboard=dashboard, kubernetes=kubernetes, runbooks=runbooks)
    say_lines(text)


def _print_configs(workspace: Workspace, flows: tuple[str, ...], origins: bool, output: str) -> int:
    from mm2mgr.output.console import say, say_json, say_plain

    connectors = operations.render(workspace, flows).to_dict(origins=origins)
    if output == "json":
        say_json(connectors)
        return 0
    for connector in connectors:
        say(f"# {connector['connector']} on Connect cluster {connector['connect']}", style="bold")
        for key, value in connector["config"].items():
            say_plain(f"{key} = {value}" + (f"    # {connector['origins'][key]}" if origins else ""))
        say()
    return 0
