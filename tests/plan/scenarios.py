"""Days in the life of an estate: trees, hand-made connectors, and one tree after the other. Values only; nothing here judges.

An example that Hypothesis found (`drawn`) prints as what can be pasted into KNOWN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

CLUSTERS = ("a", "b", "c", "d")
CONNECTS = ("x", "y")
MIRROR = "org.apache.kafka.connect.mirror."
CANARY = "canary4711"
"""Every secret has this in it."""
_LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{CANARY}-ours";'
SECURITY = f"security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN, sasl.jaas.config: '{_LOGIN}'"


@dataclass(frozen=True)
class Flow:
    """A declared flow; `include` as people write it: plain names are literal."""

    name: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    policy: str = "default"
    run_on: str = "x"


@dataclass(frozen=True)
class Tree:
    """What is declared. `aliases`: alias → the cluster that really stands there."""

    aliases: tuple[tuple[str, str], ...]
    flows: tuple[Flow, ...]
    separator: str = "."

    def yaml(
        self,
        connects: Mapping[str, tuple[str, str]],
        addresses: Mapping[str, str],
        ids: Mapping[str, str],
        *,
        security: bool = False,
    ) -> str:
        """Return the tree's text; `connects`: name → URL and the cluster that its workers live on.

        With `security`, clients have a password, which is a canary.
        """
        alias_of = {cluster: alias for alias, cluster in self.aliases}
        lines = ["owner: team", "defaults:", "  clusters: {replication_factor: 1}"]
        lines += [
            f"  flows: {{checkpoints: false, heartbeats: false, refresh_interval: 2s, separator: '{self.separator}'}}"
        ]
        lines += ["clusters:"]
        for alias, cluster in self.aliases:
            access = f", security: {{{SECURITY}}}" if security else ""
            lines += [f"  {alias}: {{bootstrap_servers: ['{addresses[cluster]}'], cluster_id: {ids[cluster]}{access}}}"]
        lines += ["connect:"]
        lines += [f"  {name}: {{url: '{url}', kafka: {alias_of[on]}}}" for name, (url, on) in connects.items()]
        lines += ["flows:" if self.flows else "flows: {}"]
        for flow in self.flows:
            topics = f"include: {_listed(flow.include)}, exclude: {_listed(flow.exclude)}"
            lines += [
                f"  {flow.name}:",
                f"    sources: {_listed(flow.sources)}",
                f"    targets: {_listed(flow.targets)}",
            ]
            lines += [
                f"    topics: {{{topics}}}",
                f"    replication_policy: {flow.policy}",
                f"    run_on: {flow.run_on}",
            ]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class ByHand:
    """A connector that somebody made by hand; `topics` as Connect gets it."""

    name: str
    source: str
    target: str
    topics: str
    source_alias: str
    target_alias: str
    connect: str = "x"
    exclude: str | None = None
    policy: str = "default"
    separator: str = "."
    state: str = "RUNNING"
    owner: str = ""
    """Another team's mark, if it has one."""

    def config(self, addresses: Mapping[str, str], worker_kafka: str) -> dict[str, str]:
        converters = (f"{kind}.converter" for kind in ("key", "value", "header"))
        policy = {"default": "DefaultReplicationPolicy", "identity": "IdentityReplicationPolicy"}[self.policy]
        config = {
            "connector.class": f"{MIRROR}MirrorSourceConnector",
            "source.cluster.alias": self.source_alias,
            "target.cluster.alias": self.target_alias,
            "source.cluster.bootstrap.servers": addresses[self.source],
            "target.cluster.bootstrap.servers": addresses[self.target],
            "topics": self.topics,
            "replication.policy.class": MIRROR + policy,
            "replication.factor": "1",
            "refresh.topics.interval.seconds": "2",
            "offset-syncs.topic.replication.factor": "1",
            "sync.topic.acls.enabled": "false",
            "heartbeats.replication.enabled": "false",
            **dict.fromkeys(converters, "org.apache.kafka.connect.converters.ByteArrayConverter"),
        }
        if self.target != worker_kafka:
            config["producer.override.bootstrap.servers"] = addresses[self.target]
        config["source.admin.ssl.key.password"] = f"{CANARY}-theirs"
        if self.owner:
            config["mm2mgr.owner"] = self.owner
        if self.exclude is not None:
            config["topics.exclude"] = self.exclude
        if self.separator != ".":
            config["replication.policy.separator"] = self.separator
        return config


@dataclass(frozen=True)
class Step:
    """One change: what appears by hand before it, the tree from now on, and how it is applied.

    `edits` are done by hand to connectors of the tree, by place in the order of names: edit, pause, delete, give away,
    unmark; or in the tree: release, adopt, move.
    `bad_day` is a seed of what goes wrong while it is applied (0: nothing does).
    """

    tree: Tree
    what: str = ""
    by_hand: tuple[ByHand, ...] = ()
    prune: bool = False
    unread: str | None = None
    """The Connect cluster whose REST API does not answer while the plan is made; its connectors run on."""
    edits: tuple[tuple[str, int], ...] = ()
    bad_day: int = 0

    def numbered(self, number: int) -> Step:
        """Return the same under aliases and names that no other number has: stored offsets outlive their connector."""

        def named(aliases: Sequence[str]) -> tuple[str, ...]:
            return tuple(f"{alias}{number}" for alias in aliases)

        flows = tuple(replace(f, sources=named(f.sources), targets=named(f.targets)) for f in self.tree.flows)
        aliases = tuple((f"{alias}{number}", cluster) for alias, cluster in self.tree.aliases)
        by_hand = tuple(
            replace(made, name=f"{made.name}{number}", source_alias=source, target_alias=target)
            for made in self.by_hand
            for source, target in [named((made.source_alias, made.target_alias))]
        )
        return replace(self, tree=replace(self.tree, aliases=aliases, flows=flows), by_hand=by_hand)


@dataclass(frozen=True)
class Scenario:
    """Clusters with topics (name → number of partitions), where the workers live, and what happens."""

    topics: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    connects: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]
    version: str = "4.3.1"

    @property
    def clusters(self) -> tuple[str, ...]:
        return tuple(cluster for cluster, _ in self.topics)


def _listed(items: Sequence[str]) -> str:
    return "[" + ", ".join(f"'{item}'" for item in items) + "]"


# --- days that are known to go wrong ------------------------------------------------------------------------------------


def day(*steps: Step, topics: str = "t", clusters: str = "ab", version: str = "4.3.1", spare: str = "") -> Scenario:
    """Return a scenario on clusters that all have the same topics of one partition; Connect cluster x lives on the last."""
    each = tuple((topic, 1) for topic in topics.split())
    connects = (("x", clusters[-1]), *((("y", spare),) if spare else ()))
    return Scenario(tuple((cluster, each) for cluster in clusters), connects, steps, version)


def tree(*flows: Flow, clusters: str = "ab", separator: str = ".") -> Tree:
    return Tree(tuple((cluster, cluster) for cluster in clusters), flows, separator)


def flow(name: str, pair: str, *include: str, **more: str) -> Flow:
    """Return a flow from the first letter to the second."""
    return Flow(name, (pair[0],), (pair[1],), include, **more)  # type: ignore[arg-type]


def by_hand(pair: str, topics: str, aliases: str = "", **more: str) -> ByHand:
    first, second = aliases or pair
    return ByHand("by-hand", pair[0], pair[1], topics, first, second, **more)


_RING = tuple(flow(pair, pair, "t", policy="identity") for pair in ("ab", "bc", "ca"))
_DIAMOND = tuple(flow(pair, pair, "t", policy="identity") for pair in ("ab", "ac", "bd", "cd"))
_ONE = tree(flow("f", "ab", "t", "u"))
_FAN_IN = (flow("f", "ba", "t"), flow("g", "ca", "t", run_on="y"))

KNOWN: dict[str, Scenario] = {
    "a ring that keeps names": day(Step(tree(*_RING, clusters="abc")), clusters="abc"),
    "both ways with names kept and patterns that meet": day(
        Step(tree(flow("f", "ab", "t.*", policy="identity"), flow("g", "ba", ".*[.]t", policy="identity"))),
        topics="t eu.t t.t",
    ),
    "a way back by hand under other aliases": day(
        Step(tree(flow("f", "ab", ".*")), by_hand=(by_hand("ba", ".*", "BA"),)),
    ),
    "a way back by hand that keeps names": day(
        Step(tree(flow("f", "ab", "t", policy="identity")), by_hand=(by_hand("ba", "t", policy="identity"),)),
    ),
    "two flows whose patterns meet": day(Step(tree(flow("f", "ab", "t.*"), flow("g", "ab", "[tu]"))), topics="t u"),
    "a connector by hand on the same topics": day(Step(_ONE, by_hand=(by_hand("ab", "t"),)), topics="t u"),
    "a connector by hand on another Connect cluster": day(
        Step(_ONE, by_hand=(by_hand("ab", "[tu]", connect="y"),)), topics="t u", spare="a"
    ),
    "a stopped connector by hand that had mirrored": day(
        Step(tree(), by_hand=(by_hand("ab", "t"),)),
        Step(_ONE, by_hand=(by_hand("ab", "t", state="STOPPED"),)),
        topics="t u",
    ),
    "a flow that is renamed": day(Step(_ONE), Step(tree(flow("g", "ab", "t", "u"))), topics="t u"),
    "a flow that is renamed, with pruning": day(
        Step(_ONE), Step(tree(flow("g", "ab", "t", "u")), prune=True), topics="t u"
    ),
    "a flow that is renamed and tidied": day(Step(_ONE), Step(tree(flow("g", "ab", "[tu]")), prune=True), topics="t u"),
    "a topic moved between flows": day(
        Step(tree(flow("f", "ab", "t", "u"), flow("g", "ab", "v"))),
        Step(tree(flow("f", "ab", "t"), flow("g", "ab", "v", "u"))),
        topics="t u v",
    ),
    "a topic moved into a new flow": day(
        Step(_ONE), Step(tree(flow("f", "ab", "t"), flow("g", "ab", "u"))), topics="t u"
    ),
    "a topic moved back while the orphan runs": day(
        Step(_ONE),
        Step(tree(flow("f", "ab", "t"))),
        Step(tree(flow("g", "ab", "u"))),
        Step(_ONE),
        topics="t u",
    ),
    "another Connect cluster": day(Step(_ONE), Step(tree(replace(_ONE.flows[0], run_on="y"))), topics="t u", spare="a"),
    "another Connect cluster while the old one is down": day(
        Step(_ONE), Step(tree(replace(_ONE.flows[0], run_on="y")), unread="x"), topics="t u", spare="a"
    ),
    "another Connect cluster and separator on a day when the old one is hardly read": Scenario(
        tuple((cluster, (("t", 1),)) for cluster in "abc"),
        (("x", "a"), ("y", "a")),
        (
            Step(tree(replace(_FAN_IN[0], run_on="y"), _FAN_IN[1], clusters="abc")),
            Step(tree(*_FAN_IN, clusters="abc", separator="_"), bad_day=7),
        ),
    ),
    "an alias that is renamed": day(
        Step(_ONE),
        Step(Tree((("n", "a"), ("b", "b")), (Flow("f", ("n",), ("b",), ("t", "u")),)), prune=True),
        topics="t u",
    ),
    "a shortcut that keeps names": day(
        Step(tree(*(flow(pair, pair, "t", policy="identity") for pair in ("ab", "bc")), clusters="abc")),
        Step(tree(*(flow(pair, pair, "t", policy="identity") for pair in ("ab", "bc", "ac")), clusters="abc")),
        clusters="abc",
    ),
    "a ring that is closed later": day(
        Step(tree(*_RING[1:], clusters="abc")), Step(tree(*_RING, clusters="abc")), clusters="abc"
    ),
    "a ring whose blocked flow is renamed": day(
        Step(tree(*_RING, clusters="abc")),
        Step(tree(*_RING[1:], replace(_RING[0], name="g"), clusters="abc")),
        clusters="abc",
    ),
    "a diamond that keeps names": day(Step(tree(*_DIAMOND, clusters="abcd")), clusters="abcd"),
    "a flow that is turned round, names kept, with pruning": day(
        Step(tree(flow("f", "ba", "t", policy="identity"))),
        Step(tree(flow("g", "ab", "t", policy="identity")), prune=True),
    ),
    "a topic that is turned round, names kept": day(
        Step(tree(flow("f", "ba", "t", "u", policy="identity"))),
        Step(tree(flow("f", "ba", "u", policy="identity"), flow("g", "ab", "t", policy="identity"))),
        topics="t u",
    ),
    "a stopped way back by hand that keeps names": day(
        Step(tree(), by_hand=(by_hand("ba", "t", policy="identity"),)),
        Step(
            tree(flow("g", "ab", "t", policy="identity")),
            by_hand=(by_hand("ba", "t", policy="identity", state="STOPPED"),),
        ),
    ),
    "a connector replaced by hand by one that goes the other way, and a flow renamed": day(
        Step(tree(flow("f", "ba", "t", policy="identity"))),
        Step(
            tree(flow("f", "ba", "t", policy="identity")),
            by_hand=(ByHand("mm2.b.a.source.f", "a", "b", "u", "a", "b"),),
        ),
        Step(tree(flow("g", "ba", "t", policy="identity"))),
    ),
    "a hand-made connector with another separator, and flows both ways": Scenario(
        (("a", (("t", 1),)), ("b", (("t", 1),))),
        (("x", "b"), ("y", "b")),
        (
            Step(
                tree(flow("f", "ba", "t"), flow("g", "ab", "t", run_on="y"), separator="_"),
                by_hand=(
                    ByHand("hand", "a", "b", "t", "a", "b"),
                    ByHand("mm2.a.b.source.g", "a", "b", "(?:t)", "a", "b", connect="y", separator="_"),
                ),
                edits=(("adopt", 0),),
            ),
        ),
    ),
    "a way back to a flow whose connector somebody else has replaced": day(
        Step(tree(), by_hand=(ByHand("mm2.a.b.source.f", "a", "b", "t", "a", "b", policy="identity"),)),
        Step(tree(), by_hand=(ByHand("mm2.a.b.source.f", "a", "b", "u", "a", "b", policy="identity"),)),
        Step(tree(flow("f", "ab", "t", policy="identity"), flow("g", "ba", "t", policy="identity"))),
    ),
    "a flow renamed whose connector had mirrored under another alias": day(
        Step(tree(), by_hand=(ByHand("mm2.a.b.source.f", "a", "b", "t", "A", "B", policy="identity"),)),
        Step(
            tree(flow("f", "ab", "t", policy="identity")),
            by_hand=(ByHand("mm2.a.b.source.f", "a", "b", "t", "a", "b", policy="identity", state="STOPPED"),),
            edits=(("adopt", 0),),
        ),
        Step(tree(flow("g", "ab", "t", policy="identity"))),
    ),
    "a way back to a connector of others that is part of another loop": day(
        Step(
            tree(flow("f", "ba", "t", ".*[.]t")),
            by_hand=(
                ByHand("first", "a", "b", ".*[.]t", "a", "b", policy="identity"),
                ByHand("second", "b", "a", "eu.t", "b", "a", policy="identity"),
            ),
        ),
    ),
    "a move, with pruning, to a Connect cluster that cannot be read": day(
        Step(tree(flow("f", "ab", "t", policy="identity", run_on="y"))),
        Step(tree(flow("f", "ab", "t", policy="identity")), prune=True, unread="x"),
        spare="b",
    ),
    "a way back beside a connector by hand that is part of another loop": day(
        Step(tree(flow("f", "ab", ".*[.]t", policy="identity")), by_hand=(ByHand("first", "a", "b", "t", "a", "b"),)),
        Step(
            tree(*(flow(name, pair, ".*[.]t", policy="identity") for name, pair in (("g", "ab"), ("h", "ba")))),
            by_hand=(ByHand("second", "b", "a", ".*[.]t", "b", "a"),),
        ),
    ),
    "a flow that keeps names, and a way back on a Connect cluster that cannot be read": day(
        Step(tree(), by_hand=(by_hand("ba", "t,.*[.]t", connect="y"),)),
        Step(tree(flow("f", "ab", ".*[.]t", policy="identity")), unread="y"),
        spare="a",
    ),
}

HARMLESS: dict[str, Scenario] = {
    "a flow that is turned round, aliases in the names": day(
        Step(tree(flow("f", "ba", "t"))), Step(tree(flow("g", "ab", "t")), prune=True)
    ),
    "a flow that is turned round with another topic, names kept": day(
        Step(tree(flow("f", "ba", "u", policy="identity"))),
        Step(tree(flow("g", "ab", "t", policy="identity")), prune=True),
        topics="t u",
    ),
    "both ways, each with topics of its own": day(
        Step(tree(flow("f", "ab", "eu[.].*"), flow("g", "ba", "us[.].*"))), topics="eu.t us.t t"
    ),
    "both ways with everything, aliases in the names": day(
        Step(tree(flow("f", "ab", ".*"), flow("g", "ba", ".*"))), topics="t u"
    ),
    "both ways with names kept and plain names that differ": day(
        Step(tree(flow("f", "ab", "t", policy="identity"), flow("g", "ba", "u", policy="identity"))), topics="t u"
    ),
    "two into one, names kept": day(
        Step(tree(Flow("f", ("a", "b"), ("c",), ("t",), policy="identity"), clusters="abc")), clusters="abc"
    ),
    "three into one": day(Step(tree(Flow("f", ("a", "b", "c"), ("d",), (".*",)), clusters="abcd")), clusters="abcd"),
    "a source more": day(
        Step(tree(flow("f", "ac", "t"), clusters="abc")),
        Step(tree(Flow("f", ("a", "b"), ("c",), ("t",)), clusters="abc")),
        clusters="abc",
    ),
    "a source more, names kept": day(
        Step(tree(flow("f", "ac", "t", policy="identity"), clusters="abc")),
        Step(tree(Flow("f", ("a", "b"), ("c",), ("t",), policy="identity"), clusters="abc")),
        clusters="abc",
    ),
    "a target more": day(
        Step(tree(flow("f", "ac", "t"), clusters="abc")),
        Step(tree(Flow("f", ("a",), ("b", "c"), ("t",)), clusters="abc")),
        clusters="abc",
    ),
    "a topic more": day(Step(tree(flow("f", "ab", "t"))), Step(_ONE), topics="t u"),
    "a tidied pattern": day(Step(_ONE), Step(tree(flow("f", "ab", "[tu]"))), topics="t u"),
    "another flow beside it": day(Step(_ONE), Step(tree(*_ONE.flows, flow("g", "ab", "v"))), topics="t u v"),
    "a new flow while another Connect cluster is down": day(
        Step(_ONE), Step(tree(*_ONE.flows, flow("g", "ab", "v")), unread="y"), topics="t u v", spare="a"
    ),
    "a topic less, and back": day(Step(_ONE), Step(tree(flow("f", "ab", "t"))), Step(_ONE), topics="t u"),
    "a flow deleted and added back": day(Step(_ONE), Step(tree(), prune=True), Step(_ONE), topics="t u"),
    "a separator of its own": day(Step(tree(flow("f", "ab", ".*t"), flow("g", "ba", ".*t"), separator="_"))),
    "two flows beside a connector by hand with other aliases, one of them adopted": day(
        Step(
            tree(flow("f", "ba", "t"), flow("g", "ca", "t"), clusters="abc"),
            by_hand=(by_hand("ba", "t", "BA"), ByHand("mm2.b.a.source.f", "b", "a", "(?:t)", "b", "a")),
            edits=(("adopt", 0),),
        ),
        clusters="abc",
    ),
    "a connector by hand beside it": day(Step(_ONE, by_hand=(by_hand("ab", "v"),)), topics="t u v"),
}
