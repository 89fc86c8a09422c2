"""The command explain."""

from __future__ import annotations

import click

from mm2mgr import operations
from mm2mgr.cli.options import invalid_arguments, output_option, talk_other_line
from mm2mgr.operations.workspace import Workspace


@click.command()
@click.argument("name", metavar="KEY|RULE|FLOW")
@click.option(
    "--on", metavar="CLASS", help="Connector type (source, checkpoint, heartbeat) or class. Default: all types."
)
@click.option("--kafka", metavar="VERSION", help="Kafka version of the workers. Default: the newest known.")
@click.option("--all", "everything", is_flag=True, help="For a FLOW: also settings that keep Kafka's defaults.")
@output_option
@click.pass_obj
def explain(workspace: Workspace, name: str, on: str | None, kafka: str | None, everything: bool, output: str) -> None:
    """Explain a Kafka KEY, a lint RULE, or the clients of a FLOW.

    For a KEY, however it is spelled: what it does, and what to write instead. For a FLOW: the settings of each client. Use
    the id of a flow whose name is also a key or a rule. Exit code 1 when none is known.

    \b
    Example:
      mm2mgr explain producer.batch.size
      mm2mgr explain source.cluster.client.rack --on source --kafka 3.9
      mm2mgr explain wrong-kafka
      mm2mgr explain 'logging:dc1-logging->agg-east'
    """
    from mm2mgr.output.console import say_json
    from mm2mgr.output.lint_text import say_client_settings, say_explanation, say_rule

    with invalid_arguments():
        found = operations.explain(workspace, name, on=on, kafka=kafka, everything=everything, report=talk_other_line)
    if output == "json":
        say_json(found.value)
    elif found.kind == "key":
        say_explanation(found.value)
    elif found.kind == "rule":
        say_rule(found.value)
    else:
        say_client_settings(found.value)
