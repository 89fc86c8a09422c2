"""How status and describe go about it: one look through `mm2mgr.observe`, printed from its `to_dict()`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from mm2mgr.cli.estate import Estate
from mm2mgr.errors import Mm2mgrError
from mm2mgr.observe.status import describe, status
from mm2mgr.output.console import say_json, working
from mm2mgr.output.status_text import say_description, say_status


def read_status(estate: Estate, names: Sequence[str], watch_seconds: float = 0.0) -> dict[str, Any]:
    """Return the status of the named flows as JSON-ready values."""
    only = estate.only(names)
    looked = asyncio.run(status(estate.topology, estate.connectors, only=only, watch_seconds=watch_seconds))
    return looked.to_dict()


def run_status(estate: Estate, names: Sequence[str], *, watch_seconds: float, output: str) -> int:
    """Print the status; return 1 when something is not as it should be or could not be read."""
    with working("reading Connect and Kafka"):
        found = read_status(estate, names, watch_seconds)
    if output == "json":
        say_json(found)
    else:
        say_status(found)
    return 1 if found["health"] in {"problem", "unknown"} else 0


def run_describe(estate: Estate, name: str, *, output: str) -> int:
    """Print everything about one flow; return 1 when it has a problem."""
    flows = estate.flows((name,))
    if len(flows) > 1:
        raise Mm2mgrError(
            f"'{name}' means {len(flows)} flows", hint=f"name one: {', '.join(flow.id for flow in flows)}"
        )
    with working("reading Connect and Kafka"):
        found = asyncio.run(describe(estate.topology, estate.connectors, flows[0])).to_dict()
    if output == "json":
        say_json(found)
    else:
        say_description(found)
    return 1 if found["status"]["health"] in {"problem", "unknown"} else 0
