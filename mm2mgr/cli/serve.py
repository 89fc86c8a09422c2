"""The command `serve`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from mm2mgr import operations
from mm2mgr.cli import interrupts
from mm2mgr.cli.options import (
    WATCHDOG_NAMES,
    Duration,
    Parsed,
    command,
    invalid_arguments,
    option,
    store_option,
    watchdog_options,
)
from mm2mgr.errors import InvalidArgument, Mm2mgrError
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    import asyncio

    from mm2mgr.operations import WatchOrder
    from mm2mgr.serve.app import Login

PASSWORD, TOKEN = "MM2MGR_SERVE_PASSWORD", "MM2MGR_SERVE_TOKEN"
_CLOSE_SECONDS = 1.4  # after the signal
_WRITE_SECONDS = 20.0  # where an assignment is being written, which Connect answers and the history records
_MOST_SECRET_BYTES = 1 << 20
_File = click.Path(path_type=Path, dir_okay=False, exists=True)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and int(port) < 65_536
    if not is_port or not host or (":" in host) != host.startswith("["):
        raise ValueError("is not an address such as 127.0.0.1:8642 or [::]:8642")
    return host.strip("[]"), int(port)


@command("Every day", 15)
@option(
    "--listen",
    type=Parsed("address", _address),
    default="127.0.0.1:8642",
    help="Address and port; port 0 takes a free one.",
)
@option("--every", type=Duration(1), default="30s", help="Time between two looks at status and lag.")
@option(
    "--survey-every", type=Duration(10), default="5min", help="Time between two readings of lint, plan and history."
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
    type=click.Choice(["audit", "failover", "rebalance", "throughput"]),
    show_default=False,
    help="Do this too (repeatable). audit: every hour, what `mm2mgr audit --follow` does; failover: check pairs that"
    " declare it, every 15 minutes or as they say; throughput: roll samples up, every hour; rebalance: write"
    " assignments with every look, where and when `balance` of the tree allows it.",
)
@option(
    "--watchdog",
    is_flag=True,
    help="Restart FAILED tasks too, as `mm2mgr watch` does. The options below are for this; --freeze-file, --reason and"
    " --events for --with rebalance, too.",
)
@watchdog_options
@click.pass_obj
def serve(
    workspace: Workspace,
    listen: tuple[str, int],
    every: float,
    survey_every: float,
    user: str,
    password_file: Path | None,
    token_file: Path | None,
    no_auth: bool,
    tls_certificate: Path | None,
    tls_key: Path | None,
    store: Path,
    beside: tuple[str, ...],
    watchdog: bool,
    order: WatchOrder,
    events: Path | None,
) -> int:
    """Serve a page, Prometheus metrics and JSON about all flows.

    Looks at status and lag again and again, as `status --watch` does; requests show the last look and ask no cluster.
    Nothing is written to Kafka or Connect, except by --watchdog, which restarts what FAILED as `mm2mgr watch` does,
    beside other processes that watch too (one of them restarts, the others stand by), and by `--with rebalance`. The
    page has the flows by source and target, each flow with tasks, lag over time and partitions, losses, findings of
    lint, recent changes and the plan. With `--with audit`, flows that declare `audit: 2%` are sampled every hour; with
    `--with throughput`, each hour of the samples is rolled up when it is over, on Spark where `mm2mgr throughput` would
    be; with `--with rebalance`, flows with `balance: plugin` get another assignment as `mm2mgr rebalance` writes it;
    with `--with failover`, pairs that declare `failover` are checked as `mm2mgr failover check` does, and what is read
    of their sources is kept for the day on which they do not answer. /metrics is for Prometheus, /api/status,
    /api/flow?id=FLOW, /api/findings, /api/plan, /api/history, /api/watchdog, /api/rebalance and /api/failover are JSON,
    /healthz tells whether looks succeed (503 where they do not). Listens on this machine alone; elsewhere only with a
    login, or --no-auth. Ctrl-C or SIGTERM end it. Needs the extra `serve` of the package.

    \b
    Example:
      mm2mgr serve
      mm2mgr serve --watchdog --freeze-file /run/mm2mgr/freeze
      mm2mgr serve --listen 0.0.0.0:8642 --password-file password --tls-certificate tls.crt --tls-key tls.key
    """
    from mm2mgr.output.console import flush, talk
    from mm2mgr.serve.app import application
    from mm2mgr.serve.server import Binding, Connections, check_tls, is_loopback, listening, run

    source_of = click.get_current_context().get_parameter_source
    shared = {"freeze_file", "reason", "events"} if "rebalance" in beside else set[str]()
    names = [name for name in WATCHDOG_NAMES if name not in shared]
    typed = [name for name in names if source_of(name) is not ParameterSource.DEFAULT]
    if typed and not watchdog:
        raise click.UsageError(f"--{typed[0].replace('_', '-')} needs --watchdog")
    if "rebalance" in beside and order.dry_run:
        raise click.UsageError("--with rebalance writes, and --dry-run does not: leave one out")
    binding = Binding(*listen, tls_certificate, tls_key)
    with invalid_arguments():
        login = _login(user, password_file, token_file)
        if not (binding.is_loopback or login or no_auth):
            options = "name --password-file or --token-file, or write --no-auth"
            raise InvalidArgument("listen", f"{binding.host} can be reached from other machines: {options}")
        check_tls(binding)
    if login and not binding.is_loopback and binding.certificate is None:
        talk("warning: without --tls-certificate the password crosses the network readable", style="bold yellow")
    pause = min(every, operations.WatchdogOrder.every_seconds)
    asked = operations.WatchdogOrder(order, pause, events, _WatchPrinter()) if watchdog else None
    audits = _audits(store) if "audit" in beside else None
    roll_ups = _roll_ups(store) if "throughput" in beside else None
    balance = operations.RebalanceOrder((), order.freeze_file, store=store, reason=order.reason)
    rebalances = operations.RebalancesOrder(balance, events, _RebalancePrinter()) if "rebalance" in beside else None
    failover = _failover_checks(store) if "failover" in beside else None
    watch = operations.serve(
        workspace, operations.ServeOrder(every, survey_every, store, asked, audits, roll_ups, rebalances, failover)
    )
    hosts, connections = is_loopback if binding.is_loopback and not login else None, Connections()
    app = application(lambda: watch.view, login, hosts=hosts, closed=connections.closed)
    with invalid_arguments(), listening(binding) as (listener, url):

        @contextmanager
        def halting(first: Callable[[], None], second: Callable[[], None]) -> Iterator[asyncio.Event]:
            def stop() -> None:
                watch.stop()
                first()

            with interrupts.halting(stop, second) as halt:
                talk(f"serving {url}; Ctrl-C ends it")
                yield halt

        watch.start()
        run(app, binding, listener, halting, connections)
    if not watch.close(_WRITE_SECONDS if watch.is_writing else _CLOSE_SECONDS):
        # A look that waits for a dead cluster would hold the process for as long as that. What it remembers is written
        # whole or not.
        flush()
        os._exit(0)
    return 0


def _audits(store: Path) -> operations.AuditsOrder:
    from mm2mgr.output.audit_text import talk_audit_round

    return operations.AuditsOrder(operations.FollowOrder(store=store, started_by="serve"), talk_audit_round)


def _roll_ups(store: Path) -> operations.RollUpsOrder:
    from mm2mgr.output.load_text import talk_roll_up

    return operations.RollUpsOrder(operations.RollUpOrder(store), talk_roll_up)


def _failover_checks(store: Path) -> operations.FailoverChecksOrder:
    return operations.FailoverChecksOrder(operations.FailoverOrder(store), report=_FailoverPrinter())


class _FailoverPrinter:
    def __init__(self) -> None:
        self._printed: dict[str, str] = {}

    def __call__(self, done: operations.FailoverRound) -> None:
        from mm2mgr.output.failover_watch_text import say_failover_round

        self._printed = say_failover_round(done, self._printed)


class _WatchPrinter:
    def __init__(self) -> None:
        self._printed = ""

    def __call__(self, done: operations.WatchRound) -> None:
        from mm2mgr.output.history_text import say_watch_round

        self._printed = say_watch_round(done, self._printed)


class _RebalancePrinter:
    def __init__(self) -> None:
        self._printed = ""

    def __call__(self, done: operations.RebalanceRound) -> None:
        from mm2mgr.output.automatic_rebalance_text import say_rebalance_round

        self._printed = say_rebalance_round(done, self._printed)


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
