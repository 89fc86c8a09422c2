"""The commands `who` and `topics`: where a topic goes, and what a flow takes."""

from __future__ import annotations

import click

from mm2mgr import operations
from mm2mgr.cli.options import command, invalid_arguments, option, output_option, snapshot_option
from mm2mgr.errors import ExitCode
from mm2mgr.operations.workspace import Workspace


@command("Every day", 8)
@click.argument("topic")
@option("--cluster", metavar="ALIAS", help="Kafka cluster on which it has this name. Default: where it is.")
@option("--offline", is_flag=True, help="Contact nothing: what the tree declares.")
@output_option
@click.pass_obj
@snapshot_option
def who(workspace: Workspace, topic: str, cluster: str | None, offline: bool, output: str) -> int:
    """Show who mirrors TOPIC, and where it ends up.

    Over all hops, by connectors of the tree and all others that the declared Connect clusters run: every name that
    the topic has on its way, the connector behind each, its state and owner. TOPIC may be a mirrored name, such as
    dc1.orders: then it is shown where it comes from, too. Brokers are asked whether the names are there. Connectors
    whose list names the topic, but do not mirror it, are shown with the reason.

    \b
    Example:
      mm2mgr who app.orders
    """
    from mm2mgr.output.console import say_as, working
    from mm2mgr.output.who_text import say_routes

    with working("reading Connect and Kafka"), invalid_arguments():
        routes = operations.who(workspace, topic, cluster=cluster, offline=offline)
    say_as(output, routes, say_routes)
    return 1 if routes.unread else 0


@command("Every day", 9)
@click.argument("flows", nargs=-1, required=True)
@option("--all", "every", is_flag=True, help="Also topics of the source that are not taken, with the reason.")
@output_option
@click.pass_obj
@snapshot_option
def topics(workspace: Workspace, flows: tuple[str, ...], every: bool, output: str) -> int:
    """Show which topics FLOWS take of their sources now.

    The brokers of source and target are asked: partitions of each topic, its name on the target, and whether it is
    there.

    \b
    Example:
      mm2mgr topics 'logging:dc1-logging->agg-east' --all
    """
    from mm2mgr.output.console import say_as, working
    from mm2mgr.output.who_text import say_topics

    with working("reading Kafka"):
        taken = operations.topics(workspace, flows, every=every)
    say_as(output, taken, say_topics)
    if any(flow.error for flow in taken):
        return ExitCode.NO
    return ExitCode.LOOK if any(flow.notes for flow in taken) else ExitCode.YES
