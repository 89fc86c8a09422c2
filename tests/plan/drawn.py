"""Scenarios drawn at random: clusters, a first tree, hand-made connectors near it, and the changes that people make to trees.

In: Hypothesis. Out: a Scenario. A tree that mm2mgr refuses may come out too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from hypothesis import strategies as st

from tests.plan.scenarios import CLUSTERS, CONNECTS, ByHand, Flow, Scenario, Step, Tree

VERSIONS = ("3.6.2", "3.9.1", "4.3.1")
TOPICS = ("t", "u", "eu.t", "eu-t", "us.t", "t-internal", "b.t")
PATTERNS = ("t", "u", "eu.t", "us.t", "t-internal", "eu[.].*", "us[.].*", "[tu]", "t.*", ".*[.]t", ".*")
EXCLUDES = ("u", "us[.].*", "[a-d][.].*")
SEPARATORS = (".", "_", "-")
POLICIES = ("default", "identity")
EDITS = ("edit", "pause", "delete", "give away", "unmark", "release", "adopt", "move")


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
    pairs = pairwise(around)
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
    for one, other in pairwise(around):
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
    name, owner = f"hand-{number}", "others" if d.chance(3) else ""
    if tree.flows and d.chance(4):  # a name that the tree wants, or will want
        wanted = d.one(tree.flows)
        assert isinstance(wanted, Flow)
        name = f"mm2.{wanted.sources[0]}.{wanted.targets[0]}.source.{wanted.name}"
    where = d.text(d.connects)
    return ByHand(name, source, target, topics, *aliases, where, exclude, policy, separator, state, owner)


def _wanted_by_hand(d: _Drawing, tree: Tree) -> ByHand:
    """Return a connector that does nearly what a flow of the tree wants, under its name."""
    f, cluster_of = d.one(tree.flows), dict(tree.aliases)
    assert isinstance(f, Flow)
    source, target = d.text(f.sources), d.text(f.targets)
    topics = d.few(PATTERNS, 2) if d.chance(4) else _tidied(f.include)
    name, state = f"mm2.{source}.{target}.source.{f.name}", "STOPPED" if d.chance(5) else "RUNNING"
    ends, owner = (cluster_of[source], cluster_of[target]), "others" if d.chance(3) else ""
    exclude = ",".join(f.exclude) or None
    return ByHand(
        name, *ends, ",".join(topics), source, target, f.run_on, exclude, f.policy, tree.separator, state, owner
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
        edits = ((d.text(EDITS), draw(st.integers(0, 3))),) if steps and d.chance(3) else ()
        if tree.flows and d.chance(4):  # somebody made what the tree wants, and it is adopted
            made, edits = (*made, _wanted_by_hand(d, tree)), (*edits, ("adopt", draw(st.integers(0, 3))))
        elif steps and d.chance(4):
            edits = ((d.text(("give away", "unmark")), place := draw(st.integers(0, 3))), ("adopt", place))
        if steps and tree.flows and d.chance(4):  # a flow is renamed or moves, and takes its offsets along
            change = (rename_flow, change_run_on)[d.chance(3)]
            moved, flow = steps[-1].tree, d.one(steps[-1].tree.flows or (None,))
            if isinstance(flow, Flow):
                tree, what = change(d, moved, flow), f"{change.__name__}, moved"
                edits = (*edits, ("move", draw(st.integers(0, 3))))
        bad_day = draw(st.integers(1, 999)) if d.chance(2) else 0
        steps.append(Step(tree, what, made, bool(draw(st.booleans())), unread, edits, bad_day))
        tree, what = _changed(d, tree)
        if d.chance(3):
            tree, more = _changed(d, tree)
            what = f"{what}, {more}"
    return Scenario(topics, lives, tuple(steps), draw(st.sampled_from(VERSIONS[::-1])))
