"""The routes of a topic, and the topics of flows, as text."""

from __future__ import annotations

from collections.abc import Sequence

from mm2mgr.operations.who import FlowTopics, Mirroring, TakenTopic, TopicRoutes
from mm2mgr.output.console import STYLES, say, say_table
from mm2mgr.output.tables import Table
from mm2mgr.text import number_of, visible


def say_routes(report: TopicRoutes) -> None:
    """Print each route in one line, then the connectors on them, then those that do not mirror the topic, with the
    reason."""
    for route in report.routes:
        first = _stop(route[0].source, route[0].topic, None)
        say(" → ".join([first, *(_stop(hop.target, hop.becomes, hop.partitions) for hop in route)]), style="bold")
    if report.is_endless:
        say(
            "! Longer routes are cut: connectors send the topic round. `mm2mgr lint` finds such loops.",
            style=STYLES["warning"],
        )
    mirroring = [hop for hop in report.connectors if hop.takes]
    others = [hop for hop in report.connectors if not hop.takes]
    if not mirroring:
        nothing = "Nothing that is known" if report.unread else "Nothing"
        say(f"{nothing} mirrors {visible(report.topic)}.", style="bold")
    _say_connectors(mirroring, "name on target")
    if others:
        say()
        say("Not mirrored by, although they could:" if mirroring else "Named, but not mirrored, by:")
        _say_connectors(others, "")
    for connect, reason in report.unread.items():
        say(f"! Connect cluster {connect}: {reason}", style=STYLES["unknown"])
    for reason in report.unlisted.values():
        say(f"! whether it is there is not known: {reason}", style=STYLES["unknown"])


def _stop(cluster: str, topic: str | None, partitions: int | None) -> str:
    missing = " (not there yet)" if partitions == 0 else ""
    return f"{visible(cluster)}:{'?' if topic is None else visible(topic)}{missing}"


def _say_connectors(hops: Sequence[Mirroring], name: str) -> None:
    rows = [
        (
            _stop(hop.source, hop.topic, None),
            visible(hop.target),
            *([visible(hop.becomes or "?")] if name else []),
            visible(f"{hop.connect}/{hop.connector}"),
            hop.state,
            "this tree" if hop.is_ours else visible(hop.owner or "nobody"),
            ", ".join(hop.flows),
        )
        for hop in hops
    ]
    columns = ("topic", "to", *([name] if name else []), "connector", "state", "owner", "flows")
    below = [[hop.reason] if hop.reason else [] for hop in hops]
    if rows:
        say_table(Table(columns, rows, drop=("flows", "owner"), wrap=("flows",), below=below, indent=2))


def say_topics(flows: Sequence[FlowTopics]) -> None:
    """Print a table of each flow's topics, and how many it takes."""
    for flow in flows:
        taken = [topic for topic in flow.topics if topic.is_taken]
        partitions = sum(topic.partitions for topic in taken)
        count = f"{number_of(len(taken), 'topic')} with {number_of(partitions, 'partition')}"
        say(f"{flow.flow}: {flow.error or count}", style=STYLES["unknown"] if flow.error else "bold")
        reasons = any(topic.reason for topic in flow.topics)
        rows = [
            [
                visible(topic.topic),
                str(topic.partitions),
                visible(topic.becomes or "–") if topic.is_taken else "–",
                _there(topic),
                *([topic.reason] if reasons else []),
            ]
            for topic in flow.topics
        ]
        last = ["not taken because"] if reasons else []
        columns = ["topic", "partitions", f"name on {flow.target}", "there", *last]
        if rows:
            say_table(Table(columns, rows, right=("partitions",), wrap=last, indent=2))
        for note in flow.notes:
            say(f"  ! {note}", style=STYLES["unknown"])


def _there(topic: TakenTopic) -> str:
    if not topic.is_taken:
        return "–"
    if topic.arrived is None:
        return "?"
    if not topic.arrived:
        return "not yet"
    return "yes" if topic.arrived == topic.partitions else f"with {number_of(topic.arrived, 'partition')}"
