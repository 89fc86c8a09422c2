"""Plans leave the assignment of the Connect plugin as it runs: it is not of the tree, and `rebalance` writes it. Pure.

So the text of a running connector counts as declared: it is no difference, and whatever else is written carries it
along, also onto the connector that goes on with the flow under another name or on another Connect cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from mm2mgr.assignment_text import ASSIGNMENT_KEY, DIGEST_KEY, AssignmentRefused, is_plugin_class, read_text
from mm2mgr.comparison.differences import Named
from mm2mgr.connectors import Connector, tasks_max_of
from mm2mgr.defaults import Origin
from mm2mgr.remarks import Remark
from mm2mgr.render import CLASSES, FLOW_KEY, OWNER_KEY
from mm2mgr.text import one_line

_ORIGIN = Origin("default", "mm2mgr: plan and apply leave an assignment as it runs")
Configs = Mapping[Named, Mapping[str, str]]


def with_assignments(connectors: Iterable[Connector], running: Configs) -> list[Connector]:
    """Return the tree's connectors, those of the plugin's class with the assignments that run.

    `running`: the configs that run. One that has the stock class begins without an assignment, whatever its config has.
    """
    connectors = list(connectors)
    declared = {(connector.connect, connector.name) for connector in connectors}
    former: dict[tuple[str, str], list[str]] = {}
    for named, config in running.items():
        if named not in declared and (text := _text(config)):
            former.setdefault((config.get(OWNER_KEY, ""), config.get(FLOW_KEY, "")), []).append(text)

    def text_for(connector: Connector) -> str | None:
        if not is_plugin_class(connector.config.get("connector.class", "")):
            return None
        if (live := running.get((connector.connect, connector.name))) is not None:
            return _text(live)
        texts = former.get((connector.config[OWNER_KEY], connector.config.get(FLOW_KEY, "")), [])
        return texts[0] if len(texts) == 1 else None

    return [
        connector if (text := text_for(connector)) is None else _with_text(connector, text) for connector in connectors
    ]


def with_stock_class(config: Mapping[str, str]) -> dict[str, str]:
    """Return a running config of the plugin's class with MirrorMaker's own, as `balance: stock` writes it: without the
    assignment. Name, topics and stored offsets stay.
    """
    others = {key: value for key, value in config.items() if key not in ("name", ASSIGNMENT_KEY, DIGEST_KEY)}
    return others | {"connector.class": CLASSES["source"]}


def _text(config: Mapping[str, str]) -> str | None:
    """Return the assignment by which the tasks of a connector run."""
    return config.get(ASSIGNMENT_KEY) if is_plugin_class(config.get("connector.class", "")) else None


def _with_text(connector: Connector, text: str) -> Connector:
    config, origins = {**connector.config, ASSIGNMENT_KEY: text}, {**connector.origins, ASSIGNMENT_KEY: _ORIGIN}
    return replace(connector, config=config, origins=origins)


def assignment_remarks(config: Mapping[str, str]) -> Iterator[Remark]:
    """Yield what is said of an assignment that is carried along: it is for more tasks than the tree allows, or nobody
    here can read it.
    """
    if ASSIGNMENT_KEY not in config:
        return
    try:
        tasks, most = len(read_text(config[ASSIGNMENT_KEY]).rates), tasks_max_of(config)
        if most is not None and tasks > most:
            text = f"its assignment has {tasks} tasks, and tasks.max would be {most}: the plugin refuses that"
            first = "write an assignment of fewer tasks first (mm2mgr rebalance --apply)"
            remedy = f"{first}, or keep tasks: {{max: {tasks}}}, or write balance: stock"
            yield Remark(text, "blocks", remedy)
    except AssignmentRefused as refusal:
        text = f"{one_line(refusal.message)}; it stays as it runs"
        remedy = (
            "use the mm2mgr that wrote it, or write another assignment; without the key, which can be removed over"
            " REST, the plugin deals evenly"
        )
        yield Remark(text, "warns", remedy)
