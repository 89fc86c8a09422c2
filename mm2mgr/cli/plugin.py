"""The commands of mm2mgr's Connect plugin: write its jar."""

from __future__ import annotations

from pathlib import Path

import click

from mm2mgr import operations
from mm2mgr.cli.options import FOLDER, CommandGroup, in_help, output_option


@in_help("Load", 7)
@click.group(cls=CommandGroup)
def plugin() -> None:
    """The Connect plugin that assigns partitions to tasks by load.

    An optional jar on workers of Kafka 3.6 or newer. MirrorMaker's source connector assigns partitions round-robin;
    the plugin's takes the assignment from its config. The records are mirrored by the same tasks.

    \b
    Example:
      mm2mgr plugin write ./connect-plugins
    """


@plugin.command("write")
@click.argument("folder", type=FOLDER, metavar="DIR")
@output_option
def plugin_write(folder: Path, output: str) -> None:
    """Write the plugin's jar into DIR, and say how it gets onto workers.

    An older jar of mm2mgr in DIR is replaced. No cluster is asked.

    \b
    Example:
      mm2mgr plugin write ./connect-plugins
    """
    from mm2mgr.output.console import say, say_json

    written = operations.write_plugin(folder)
    if output == "json":
        say_json(operations.to_json(written))
        return
    say(f"{written.change}: {written.path}")
    say(f"class   {written.connector_class}")
    say(f"version {written.version}")
    say(f"sha256  {written.sha256}")
    say()
    say("Next, on every worker of the Connect cluster, one after the other:")
    say("1. Copy the jar into a folder of its own below a folder of the worker's plugin.path.")
    say("2. Restart the worker.")
    say(f"3. GET /connector-plugins of that worker lists {written.connector_class}.")
    say()
    say("A connector of this class fails on a worker without the jar.")
    say("Images, Strimzi, Confluent, MSK: docs/how-to/plugin.md")
