"""The command schema."""

from __future__ import annotations

import click

from mm2mgr import operations


@click.command()
def schema() -> None:
    """Print the JSON Schema of the YAML files, for editors.

    \b
    Example:
      mm2mgr schema > mm2mgr.schema.json
      # first line of each file: # yaml-language-server: $schema=../mm2mgr.schema.json
    """
    from mm2mgr.output.console import say_json

    say_json(operations.schema())
