"""The command `serve`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mm2mgr import operations
from mm2mgr.cli import interrupts
from mm2mgr.cli.options import (
    Duration,
    Parsed,
    change_options,
    command,
    invalid_arguments,
    option,
    output_option,
    sample_options,
    store_option,
    watchdog_options,
)
from mm2mgr.errors import InvalidArgument, Mm2mgrError
from mm2mgr.operations.workspace import Workspace
from mm2mgr.text import list_names

if TYPE_CHECKING:
    import asyncio

    from mm2mgr.operations import PlanOptions, WatchOrder
    from mm2mgr.operations.sample import SampleOrder
    from mm2mgr.output.console import PartLog
    from mm2mgr.serve.app import Login

PASSWORD, TOKEN = "MM2MGR_SERVE_PASSWORD", "MM2MGR_SERVE_TOKEN"
_CLOSE_SECONDS = 1.2  # after the signal: a lease is given up in one second, or not at all
_READ_SECONDS = 0.3
_WRITE_SECONDS = 20.0  # where connectors are being written, which Connect answers and the history records
_MOST_SECRET_BYTES = 1 << 20
_File = click.Path(path_type=Path, dir_okay=False, exists=True)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and int(port) < 65_536
    if not is_port or not host or (":" in host) != host.startswith("["):
        raise ValueError("is not an address such as 127.0.0.1:8642 or [::]:8642")
    return host.strip("[]"), int(port)


_WRITERS = ("watch", "reconcile", "rebalance")
_TABLES = ("sample", "throughput", "audit")
_PARTS_OF = {
    **dict.fromkeys(("dry_run", "first_wait", "restarts", "window"), ("watch",)),
    **dict.fromkeys(("only_flows", "prune", "allow", "allow_deletes", "max_changes"), ("reconcile",)),
    **dict.fromkeys(("report_only", "wait", "rollback"), ("reconcile",)),
    **dict.fromkeys(("interval", "aliases", "keep", "kind", "back"), ("sample",)),
    **dict.fromkeys(("reason", "events"), _WRITERS),
    "freeze_file": ("watch", "rebalance"),
    "spark": _TABLES,
}
"""Options of parts, each with the parts that it is for."""


def _parts(text: str) -> tuple[str, ...]:
    from mm2mgr.operations.estate_view import PARTS

    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in PARTS:
            raise ValueError(f"names '{name}', which is none of {', '.join(PARTS)}")
    return names


@command("Every day", 15)
@option(
    "--listen",
    type=Parsed("address", _address),
    default="127.0.0.1:8642",
    help="Address and port; port 0 takes a free one.",
)
@option(
    "--base-path",
    default="",
    metavar="PATH",
    help="Path before all links, such as /mm2mgr, where a proxy has the page there; requests may come without it.",
)
@option("--every", type=Duration(1), default="30s", help="Time between two looks at status and lag.")
@option(
    "--survey-every",
    type=Duration(10),
    default="5min",
    help="Time between two readings of lint, plan and history, at most.",
)
@option("--user", default="mm2mgr", help=f"User of the login; its password is in --password-file or ${PASSWORD}.")
@option("--password-file", type=_File, help="File with the password of the login (the first line).")
@option(
    "--token-file", type=_File, help=f"File with a bearer token that is admitted too (the first line). Or ${TOKEN}."
)
@option("--no-auth", is_flag=True, help="Serve without a login, also on an address that other machines can reach.")
@option("--tls-certificate", type=_File, help="PEM file with the certificate of the server.")
@option("--tls-key", type=_File, help="PEM file with its key, not encrypted.")
@store_option("Folder or URI of the samples, from which lag in seconds and bytes is counted.")
@option(
    "--with",
    "beside",
    multiple=True,
    type=Parsed("part,…", _parts),
    show_default=False,
    help="Do this too: one or several, with commas, of watch, reconcile, sample, throughput (roll samples up, every"
    " hour), audit (every hour), rebalance (with every look) and failover (check pairs, every 15 minutes or as they"
    " say), each as its own command does. The options below are for these parts.",
)
@watchdog_options
@change_options
@option("--report-only", is_flag=True, help="Write nothing, and take no lease.")
@option("--wait", type=Duration(), default="30s", help="Time to see written connectors run.")
@option("--rollback", is_flag=True, help="Take back what a wave that breaks a connector wrote.")
@sample_options
@output_option
@click.pass_obj
def serve(
    workspace: Workspace,
    listen: tuple[str, int],
    base_path: str,
    every: float,
    survey_every: float,
    user: str,
    password_file: Path | None,
    token_file: Path | None,
    no_auth: bool,
    tls_certificate: Path | None,
    tls_key: Path | None,
    store: Path,
    beside: tuple[tuple[str, ...], ...],
    order: WatchOrder,
    events: Path | None,
    options: PlanOptions,
    report_only: bool,
    wait: float,
    rollback: bool,
    sampling: SampleOrder,
    output: str,
) -> int:
    """Serve a page, Prometheus metrics and JSON about all flows.

    Looks at status and lag again and again, as `status --watch` does; requests show the last look and ask no cluster.
    The page says what is wrong now, and has a picture of the flows from sources over Connect clusters to targets, a list
    of flows to search, each flow with tasks, lag over time and partitions, workers, losses, findings of lint, recent
    changes and the plan. /metrics is for Prometheus, /api/status, /api/flow?id=FLOW, /api/workers, /api/findings,
    /api/plan, /api/history, /api/watchdog, /api/reconcile, /api/rebalance, /api/sample and /api/failover are JSON,
    /healthz tells whether looks succeed (503 where they do not).

    Nothing is written to Kafka or Connect, except by parts that --with names: watch restarts what FAILED, reconcile
    applies the tree every minute within the gates of `apply`, rebalance writes assignments where `balance` of the tree
    allows it. Beside other processes of the owner with the same part one writes and the others stand by, each part by
    a lease of its own; rebalance shares that of reconcile. sample records traffic, throughput rolls each hour up, and
    audit samples flows that declare `audit: 2%`, all in one Spark session where they use one; failover checks pairs
    that declare it. Best is a process for the page and another one with the parts that write.
    Each line on stderr has the time and the part that it is about; with -o json it is an object on stdout.

    Listens on this machine alone; elsewhere only with a login, or --no-auth. Ctrl-C or SIGTERM end it. Needs the extra
    `serve` of the package.

    \b
    Example:
      mm2mgr serve
      mm2mgr serve --with watch,sample,throughput --keep 90d --freeze-file /run/mm2mgr/freeze
      mm2mgr serve --listen 0.0.0.0:8642 --password-file password --tls-certificate tls.crt --tls-key tls.key
    """
    from mm2mgr.output.console import flush, log_lines, talk
    from mm2mgr.serve.app import Site, application, parse_base_path
    from mm2mgr.serve.server import Binding, Connections, check_tls, is_loopback, listening, run

    parts = frozenset(part for several in beside for part in several)
    _refuse_options_of_others(click.get_current_context(), parts)
    _refuse_contradictions(parts, order, report_only=report_only)
    binding = Binding(*listen, tls_certificate, tls_key)
    with invalid_arguments():
        base_path = parse_base_path(base_path)
        login = _login(user, password_file, token_file)
        if not (binding.is_loopback or login or no_auth):
            remedy = "name --password-file or --token-file, or write --no-auth"
            raise InvalidArgument("listen", f"{binding.host} can be reached from other machines: {remedy}")
        check_tls(binding)
    if login and not binding.is_loopback and binding.certificate is None:
        talk("warning: without --tls-certificate the password crosses the network readable", style="bold yellow")
    asked, log = (
        operations.ServeOrder(every, survey_every, store),
        log_lines("json" if output == "json" else "progress"),
    )
    if "watch" in parts:
        asked = replace(asked, watchdog=_watchdog(order, every, events, log))
    reconcile = operations.ReconcileOrder(
        options, wait_seconds=wait, rollback=rollback, report_only=report_only, reason=order.reason
    )
    if "reconcile" in parts:
        asked = replace(asked, reconciles=_reconciles(reconcile, events, log))
    if "rebalance" in parts:
        beside_reconcile = reconcile if "reconcile" in parts else None
        asked = replace(asked, rebalances=_rebalances(order, store, beside_reconcile, events, log))
    if parts.intersection({*_TABLES, "failover"}):
        asked = _with_tables(asked, parts, sampling, log)
    watch = operations.serve(workspace, asked)
    site, connections = Site(is_loopback if binding.is_loopback and not login else None, base_path), Connections()
    app = application(lambda: watch.view, login, site=site, closed=connections.closed)
    with invalid_arguments(), listening(binding) as (listener, url):

        @contextmanager
        def halting(first: Callable[[], None], second: Callable[[], None]) -> Iterator[asyncio.Event]:
            def stop() -> None:
                watch.stop()
                first()

            with interrupts.halting(stop, second) as halt:
                begins = f"serving {url}{base_path}; Ctrl-C ends it"
                if output == "json":
                    log("serve", begins)
                else:
                    talk(begins)
                yield halt

        watch.start()
        run(app, binding, listener, halting, connections)
    if not watch.close(_CLOSE_SECONDS, _WRITE_SECONDS, _READ_SECONDS):
        # A look that waits for a dead cluster, or Spark that ends in order, would hold the process for as long as that.
        # What they write is written whole or not.
        flush()
        os._exit(0)
    return 0


def _tell_parts(command: click.Command) -> None:
    """Let the help of each option of a part begin with the parts that it is for."""
    for parameter in command.params:
        of = _PARTS_OF.get(str(parameter.name))
        if of and isinstance(parameter, click.Option) and not str(parameter.help).startswith("With "):
            parameter.help = f"With {list_names(of)}: {parameter.help}"


_tell_parts(serve)


def _refuse_options_of_others(context: click.Context, parts: frozenset[str]) -> None:
    """UsageError for an option of a part that --with does not name."""
    for parameter in context.command.params:
        of = _PARTS_OF.get(str(parameter.name), ())
        is_typed = context.get_parameter_source(str(parameter.name)) is not ParameterSource.DEFAULT
        if is_typed and of and not parts.intersection(of):
            raise click.UsageError(f"{parameter.opts[0]} needs --with {' or --with '.join(of)}")


def _refuse_contradictions(parts: frozenset[str], order: WatchOrder, *, report_only: bool) -> None:
    """UsageError where one part would write and another one is told not to."""
    if "rebalance" in parts and (order.dry_run or report_only):
        quiet = "--dry-run" if order.dry_run else "--report-only"
        raise click.UsageError(f"--with rebalance writes, and {quiet} does not: leave one out")
    if parts.issuperset({"watch", "reconcile"}) and order.dry_run != report_only:
        message = (
            "watch and reconcile both write: --dry-run holds back one, --report-only the other; write both or none"
        )
        raise click.UsageError(message)


def _printing(say_round: Callable[[Any, Any, PartLog], Any], printed: object, log: PartLog) -> Callable[[Any], None]:
    """Return what prints each round of a part as far as it is another one than what was printed before."""

    def report(done: object) -> None:
        nonlocal printed
        printed = say_round(done, printed, log)

    return report


def _watchdog(order: WatchOrder, every: float, events: Path | None, log: PartLog) -> operations.WatchdogOrder:
    from mm2mgr.output.history_text import say_watch_round

    pause = min(every, operations.WatchdogOrder.every_seconds)
    return operations.WatchdogOrder(order, pause, events, _printing(say_watch_round, "", log))


def _reconciles(order: operations.ReconcileOrder, events: Path | None, log: PartLog) -> operations.ReconcilesOrder:
    from mm2mgr.output.apply_text import log_events
    from mm2mgr.output.history_text import say_round

    return operations.ReconcilesOrder(order, events, _printing(say_round, "", log), log_events("reconcile", log))


def _rebalances(
    order: WatchOrder, store: Path, reconcile: operations.ReconcileOrder | None, events: Path | None, log: PartLog
) -> operations.RebalancesOrder:
    """Return what is rebalanced: by itself, or in the rounds of `reconcile` as its --rebalance does."""
    from mm2mgr.output.automatic_rebalance_text import say_rebalance_round

    balance = operations.RebalanceOrder((), order.freeze_file, store=store, reason=order.reason)
    if reconcile:
        balance = replace(balance, flows=tuple(reconcile.options.flows), wait_seconds=reconcile.wait_seconds)
    return operations.RebalancesOrder(balance, events, _printing(say_rebalance_round, "", log))


def _with_tables(
    asked: operations.ServeOrder, parts: frozenset[str], sampling: SampleOrder, log: PartLog
) -> operations.ServeOrder:
    """Return the order with the parts that write tables alone."""
    from mm2mgr.output.audit_text import say_audit_round
    from mm2mgr.output.failover_watch_text import say_failover_round
    from mm2mgr.output.load_text import say_followed_round, say_roll_up

    store, spark = sampling.store, sampling.spark
    if "sample" in parts:
        report, warn = partial(say_followed_round, log=log), partial(log, "sample", style="yellow")
        asked = replace(asked, samples=operations.SamplesOrder(sampling, report, warn))
    if "throughput" in parts:
        roll_ups = operations.RollUpOrder(store, spark)
        asked = replace(asked, roll_ups=operations.RollUpsOrder(roll_ups, partial(say_roll_up, log=log)))
    if "audit" in parts:
        options = operations.AuditOptions(spark=spark)
        follow = operations.FollowOrder((), options, store=store, started_by="serve")
        asked = replace(asked, audits=operations.AuditsOrder(follow, partial(say_audit_round, log=log)))
    if "failover" in parts:
        report_pairs = _printing(say_failover_round, {}, log)
        checks = operations.FailoverChecksOrder(operations.FailoverOrder(store), report=report_pairs)
        asked = replace(asked, failover=checks)
    return asked


def _login(user: str, password_file: Path | None, token_file: Path | None) -> Login | None:
    from mm2mgr.serve.app import Login

    password, token = _secret(password_file, PASSWORD), _secret(token_file, TOKEN)
    return Login(user, password, token) if password or token else None


def _secret(file: Path | None, variable: str) -> str:
    """Return the first line of a file, or what a variable has; remembered, so that no message shows it. Mm2mgrError for
    an empty one."""
    from mm2mgr.files import Unreadable, read_bytes

    if file is None:
        secret = os.environ.get(variable, "")
        if variable in os.environ and not secret:
            raise Mm2mgrError(f"${variable} is empty", hint="set it to the secret, or unset it")
        if any("\udc80" <= letter <= "\udcff" for letter in secret):  # how Python keeps bytes that are none
            raise Mm2mgrError(f"${variable} is not UTF-8", hint="no browser could send it: set another secret")
    else:
        try:
            secret = read_bytes(file, _MOST_SECRET_BYTES).decode().partition("\n")[0].strip()
        except (Unreadable, UnicodeDecodeError) as error:
            reason = "cannot be read: it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
            raise Mm2mgrError(f"{file}: {reason}", hint="name a file with the secret in its first line") from error
        if not secret:
            raise Mm2mgrError(f"{file}: its first line is empty", hint="write the secret into its first line")
    from mm2mgr.secrets import remember

    remember({"secret": secret})
    return secret
