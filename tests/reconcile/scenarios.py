"""Days in the life of an estate: trees, hand-made connectors and how one tree becomes the next, as values and as strategies.

A Scenario is pure data, so an example that Hypothesis found prints as what can be pasted into KNOWN. Nothing here judges.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

CLUSTERS = ("a", "b", "c", "d")
CONNECTS = ("x", "y")
VERSIONS = ("3.6.2", "3.9.1", "4.3.1")
TOPICS = ("t", "u", "eu.t", "eu-t", "us.t", "t-internal", "b.t")
PATTERNS = ("t", "u", "eu.t", "us.t", "t-internal", "eu[.].*", "us[.].*", "[tu]", "t.*", ".*[.]t", ".*")
EXCLUDES = ("u", "us[.].*", "[a-d][.].*")
SEPARATORS = (".", "_", "-")
POLICIES = ("default", "identity")
MIRROR = "org.apache.kafka.connect.mirror."


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

    def yaml(self, connects: Mapping[str, tuple[str, str]], addresses: Mapping[str, str]) -> str:
        """Return the tree's text; `connects`: name → URL and the cluster that its workers live on."""
        alias_of = {cluster: alias for alias, cluster in self.aliases}
        lines = ["owner: team", "defaults:", "  clusters: {replication_factor: 1}"]
        lines += [
            f"  flows: {{checkpoints: false, heartbeats: false, refresh_interval: 2s, separator: '{self.separator}'}}"
        ]
        lines += ["clusters:"]
        for alias, cluster in self.aliases:
            lines += [f"  {alias}: {{bootstrap_servers: ['{addresses[cluster]}'], cluster_id: {kafka_id(cluster)}}}"]
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
        if self.exclude is not None:
            config["topics.exclude"] = self.exclude
        if self.separator != ".":
            config["replication.policy.separator"] = self.separator
        return config


@dataclass(frozen=True)
class Step:
    """One change: what appears by hand before it, the tree from now on, and how it is applied."""

    tree: Tree
    what: str = ""
    by_hand: tuple[ByHand, ...] = ()
    prune: bool = False
    unread: str | None = None
    """The Connect cluster whose REST API does not answer while the plan is made; its connectors run on."""


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


def kafka_id(cluster: str) -> str:
    return f"kafka-{cluster}"


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
    "an alias that is renamed": day(
        Step(_ONE),
        Step(Tree((("n", "a"), ("b", "b")), (Flow("f", ("n",), ("b",), ("t", "u")),)), prune=True),
        topics="t u",
    ),
    "a flow deleted, and its topics in another one": day(
        Step(_ONE), Step(tree(), prune=True), Step(tree(flow("g", "ab", "t"))), topics="t u"
    ),
    "a diamond that keeps names": day(Step(tree(*_DIAMOND, clusters="abcd")), clusters="abcd"),
}

HARMLESS: dict[str, Scenario] = {
    "both ways, each with topics of its own": day(
        Step(tree(flow("f", "ab", "eu[.].*"), flow("g", "ba", "us[.].*"))), topics="eu.t us.t t"
    ),
    "both ways with everything, aliases in the names": day(
        Step(tree(flow("f", "ab", ".*"), flow("g", "ba", ".*"))), topics="t u"
    ),
    "both ways with names kept and plain names that differ": day(
        Step(tree(flow("f", "ab", "t", policy="identity"), flow("g", "ba", "u", policy="identity"))), topics="t u"
    ),
    "three into one": day(Step(tree(Flow("f", ("a", "b", "c"), ("d",), (".*",)), clusters="abcd")), clusters="abcd"),
    "a source more": day(
        Step(tree(flow("f", "ac", "t"), clusters="abc")),
        Step(tree(Flow("f", ("a", "b"), ("c",), ("t",)), clusters="abc")),
        clusters="abc",
    ),
    "a topic less, and back": day(Step(_ONE), Step(tree(flow("f", "ab", "t"))), Step(_ONE), topics="t u"),
    "a flow deleted and added back": day(Step(_ONE), Step(tree(), prune=True), Step(_ONE), topics="t u"),
    "a separator of its own": day(Step(tree(flow("f", "ab", ".*"), flow("g", "ba", ".*"), separator="_"))),
    "a connector by hand beside it": day(Step(_ONE, by_hand=(by_hand("ab", "v"),)), topics="t u v"),
}


# --- days drawn at random -----------------------------------------------------------------------------------------------

Draw = Callable[[st.SearchStrategy], object]  # type: ignore[type-arg]


@dataclass
class _Drawing:
    """What the changes of a tree draw from, and the flows that were once there."""

    draw: Callable[..., object]
    clusters: tuple[str, ...]
    connects: tuple[str, ...]
    gone: list[Flow] = field(default_factory=list)
    names: int = 0

    def one(self, options: Sequence[object]) -> object:
        return self.draw(st.sampled_from(list(options)))

    def text(self, options: Sequence[str]) -> str:
        return str(self.one(options))

    def chance(self, of: int) -> bool:
        """Return true once in `of` times; the simplest example has none."""
        return self.draw(st.integers(0, of - 1)) == of - 1

    def few(self, options: Sequence[str], most: int) -> tuple[str, ...]:
        found = self.draw(st.lists(st.sampled_from(list(options)), min_size=1, max_size=most, unique=True))
        assert isinstance(found, list)
        return tuple(found)

    def name(self) -> str:
        self.names += 1
        return f"f{self.names}"


def _flow(d: _Drawing, aliases: Sequence[str]) -> Flow:
    target = d.text(aliases)
    sources = d.few([alias for alias in aliases if alias != target], 2)
    exclude = d.few(EXCLUDES, 1) if d.chance(4) else ()
    policy = POLICIES[d.chance(3)]
    return Flow(d.name(), sources, (target,), d.few(PATTERNS, 2), exclude, policy, d.text(d.connects))


def _ring(d: _Drawing, aliases: Sequence[str]) -> tuple[Flow, ...]:
    policy, include, run_on = POLICIES[d.chance(2)], d.few(PATTERNS, 1), d.text(d.connects)
    around = [*aliases, aliases[0]]
    pairs = itertools.pairwise(around)
    return tuple(Flow(d.name(), (one,), (other,), include, (), policy, run_on) for one, other in pairs)


def _fan(d: _Drawing, aliases: Sequence[str]) -> tuple[Flow, ...]:
    hub, include = d.text(aliases), d.few(PATTERNS, 2)
    rest = tuple(alias for alias in aliases if alias != hub)
    sources, targets = ((hub,), rest) if d.chance(2) else (rest, (hub,))
    return (Flow(d.name(), sources, targets, include, (), POLICIES[d.chance(3)], d.text(d.connects)),)


def _first_tree(d: _Drawing) -> Tree:
    aliases = tuple((cluster, cluster) for cluster in d.clusters)
    shape = d.text(("flows", "flows", "fan", "ring"))
    if shape == "flows":
        flows = tuple(_flow(d, d.clusters) for _ in range(2 if d.chance(2) else 1))
    else:
        flows = _fan(d, d.clusters) if shape == "fan" else _ring(d, d.clusters)
    return Tree(aliases, flows, SEPARATORS[d.chance(6)])


def _aliases(tree: Tree) -> list[str]:
    return [alias for alias, _ in tree.aliases]


def _put(tree: Tree, old: Flow, *new: Flow) -> Tree:
    """Replace a flow."""
    at = tree.flows.index(old)
    return replace(tree, flows=(*tree.flows[:at], *new, *tree.flows[at + 1 :]))


def rename_flow(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    return _put(tree, f, replace(f, name=d.name()))


def rename_and_tidy(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    return _put(tree, f, replace(f, name=d.name(), include=_tidied(f.include)))


def tidy_patterns(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    return _put(tree, f, replace(f, include=_tidied(f.include)))


def _tidied(include: Sequence[str]) -> tuple[str, ...]:
    return (f"(?:{'|'.join(item if set(item) & set('[*') else item.replace('.', '[.]') for item in include)})",)


def move_topic(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    """Take a topic out of a flow, and into another one of the same clusters, new or not."""
    topic, rest = f.include[-1], f.include[:-1]
    others = [g for g in tree.flows if g != f and (g.sources, g.targets) == (f.sources, f.targets)]
    if others and topic not in (into := others[0]).include:
        tree = _put(tree, into, replace(into, include=(*into.include, topic)))
    else:
        tree = _put(tree, f, f, replace(f, name=d.name(), include=(topic,)))
    return _put(tree, f, *((replace(f, include=rest),) if rest else ()))


def move_narrowed(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    """Exclude a topic of a pattern here, and name it in a flow of its own."""
    topic = d.text(TOPICS)
    return _put(
        tree, f, replace(f, exclude=(*f.exclude, topic)), replace(f, name=d.name(), include=(topic,), exclude=())
    )


def widen(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    more = [pattern for pattern in PATTERNS if pattern not in f.include]
    return _put(tree, f, replace(f, include=(*f.include, d.text(more)))) if more else tree


def narrow(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    if len(f.include) == 1:
        return _put(tree, f, replace(f, exclude=(*f.exclude, d.text(EXCLUDES))))
    return _put(tree, f, replace(f, include=f.include[:-1]))


def add_source(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    free = [alias for alias in _aliases(tree) if alias not in f.sources and alias not in f.targets]
    return _put(tree, f, replace(f, sources=(*f.sources, d.text(free)))) if free else tree


def remove_source(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    return _put(tree, f, replace(f, sources=f.sources[:-1])) if len(f.sources) > 1 else tree


def change_run_on(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    other = d.connects[(d.connects.index(f.run_on) + 1) % len(d.connects)]
    moved = [g for g in tree.flows if g == f or (set(g.sources) & set(f.sources) and set(g.targets) & set(f.targets))]
    for g in moved:  # flows of a pair run on one Connect cluster
        tree = _put(tree, g, replace(g, run_on=other))
    return tree


def change_policy(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    other = "default" if f.policy == "identity" else "identity"
    return replace(tree, flows=tuple(replace(g, policy=other) for g in tree.flows))


def change_separator(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    return replace(tree, separator=d.text([each for each in SEPARATORS if each != tree.separator]))


def rename_alias(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    old = d.text((*f.sources, *f.targets))
    new = f"{old}n"

    def named(aliases: Sequence[str]) -> tuple[str, ...]:
        return tuple(new if alias == old else alias for alias in aliases)

    flows = tuple(replace(g, sources=named(g.sources), targets=named(g.targets)) for g in tree.flows)
    return replace(tree, aliases=tuple((new if a == old else a, c) for a, c in tree.aliases), flows=flows)


def delete_flow(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    d.gone.append(f)
    return _put(tree, f)


def add_back(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    known = set(_aliases(tree))
    back = [g for g in d.gone if known.issuperset((*g.sources, *g.targets))]
    return _added(tree, back[-1]) if back else tree


def add_flow(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    return _added(tree, _flow(d, _aliases(tree)))


def reverse(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    return _added(tree, replace(f, name=d.name(), sources=(f.targets[0],), targets=(f.sources[0],)))


def close_ring(d: _Drawing, tree: Tree, f: Flow) -> Tree:
    between = [alias for alias in _aliases(tree) if alias not in (f.sources[0], f.targets[0])]
    around = [f.targets[0], *between[:1], f.sources[0]]
    for one, other in itertools.pairwise(around):
        tree = _added(tree, replace(f, name=d.name(), sources=(one,), targets=(other,)))
    return tree


def _added(tree: Tree, f: Flow) -> Tree:
    return tree if any(g.name == f.name for g in tree.flows) else replace(tree, flows=(*tree.flows, f))


CHANGES: tuple[Callable[[_Drawing, Tree, Flow], Tree], ...] = (
    *(rename_flow, rename_and_tidy, tidy_patterns, move_topic, move_narrowed, widen, narrow, add_source, remove_source),
    *(
        change_run_on,
        change_policy,
        change_separator,
        rename_alias,
        delete_flow,
        add_back,
        add_flow,
        reverse,
        close_ring,
    ),
)


def _changed(d: _Drawing, tree: Tree) -> tuple[Tree, str]:
    if not tree.flows:
        back = add_back(d, tree, Flow("", (), (), ()))
        return (back, "add_back") if back != tree else (_added(tree, _flow(d, _aliases(tree))), "add_flow")
    change = d.one(CHANGES)
    assert callable(change)
    return change(d, tree, d.one(tree.flows)), change.__name__


def _hand_made(d: _Drawing, tree: Tree, number: int) -> ByHand:
    """Return a connector that stands near the flows more often than not."""
    alias_of = {cluster: alias for alias, cluster in tree.aliases}
    cluster_of = dict(tree.aliases)
    if tree.flows and d.chance(2):
        f = tree.flows[0]
        source, target = cluster_of[f.sources[0]], cluster_of[f.targets[0]]
        source, target = (target, source) if d.chance(2) else (source, target)
    else:
        source = d.text(d.clusters)
        target = d.text([cluster for cluster in d.clusters if cluster != source])
    aliases = [alias_of[source], alias_of[target]]
    if d.chance(4):
        aliases = [alias.upper() for alias in aliases]
    topics = ",".join(d.few(PATTERNS, 2))
    exclude = d.text(EXCLUDES) if d.chance(4) else None
    state = d.text(("RUNNING", "RUNNING", "RUNNING", "PAUSED", "STOPPED"))
    policy, separator = POLICIES[d.chance(3)], SEPARATORS[d.chance(6)]
    return ByHand(
        f"hand-{number}", source, target, topics, *aliases, d.text(d.connects), exclude, policy, separator, state
    )


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Draw clusters with topics, Connect clusters, a first tree, and changes of it."""
    clusters = CLUSTERS[: draw(st.integers(2, 4))]
    connects = CONNECTS[: draw(st.integers(1, 2))]
    lives = tuple((name, draw(st.sampled_from(clusters[::-1]))) for name in connects)
    named = st.lists(st.sampled_from(TOPICS), min_size=1, max_size=3, unique=True)
    partitions = st.sampled_from((1, 1, 2))
    topics = tuple((each, tuple((topic, draw(partitions)) for topic in draw(named))) for each in clusters)
    d = _Drawing(draw, clusters, connects)
    tree, what, steps = _first_tree(d), "first", []
    hand_made = 0
    for _ in range(draw(st.integers(1, 3)) + 1):
        made = tuple(_hand_made(d, tree, hand_made + n) for n in range(d.chance(3)))
        hand_made += len(made)
        unread = connects[0] if len(connects) > 1 and steps and d.chance(8) else None
        steps.append(Step(tree, what, made, bool(draw(st.booleans())), unread))
        tree, what = _changed(d, tree)
        if d.chance(3):
            tree, more = _changed(d, tree)
            what = f"{what}, {more}"
    return Scenario(topics, lives, tuple(steps), draw(st.sampled_from(VERSIONS[::-1])))
