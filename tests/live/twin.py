"""A scenario of the property test on real clusters, beside the same in the simulation, compared record by record.

In: a Scenario. Out: whether anything was blocked; it fails when the simulation judges a plan harmful or foretold other records.
"""

from __future__ import annotations

from collections import Counter

from tests.plan.scenarios import ByHand, Scenario, Step
from tests.plan.simulated import Told, Write, harms, run
from tests.plan.simulated import World as Simulated

from .command import Tree
from .days import World
from .seen import connector_url, rest, until


class Twin:
    """A scenario on real clusters, and the same in the simulation."""

    def __init__(self, world: World, tree: Tree, scenario: Scenario) -> None:
        self.world, self.tree, self.scenario = world, tree, scenario
        first, *between, last = scenario.clusters
        self.broker = {first: "dc1", last: "agg", **dict(zip(between, ["dc2"], strict=bool(between)))}
        servers = {name: access.bootstrap_servers for name, access in world.kafkas.items()}
        self.servers = {cluster: servers[broker] for cluster, broker in self.broker.items()}
        self.simulated = Simulated({name: {} for name in servers}, {each: name for name, each in servers.items()})
        self.seen: list[Write] = []
        for cluster, names in scenario.topics:
            world.create(self.broker[cluster], *(topic for topic, _ in names))
        self.produce()

    def produce(self) -> None:
        for cluster, names in self.scenario.topics:
            for topic, _ in names:
                for one in self.world.produce(self.broker[cluster], topic, 6):
                    id_ = (one.value or b"").decode()
                    self.simulated.produce(self.broker[cluster], topic, id_, partition=one.partition)

    def step(self, step: Step) -> bool:
        """Go one step, compare, and return whether anything was blocked."""
        for made in step.by_hand:
            self.make(made)
        self.mirrored()
        before = self.world.running()
        self.produce()
        now, idle_world = self.simulated.copy(), self.simulated.copy()
        blocked = self.apply(step)
        idle = run(idle_world, before)
        busy = run(self.simulated, self.world.running())
        harm = list(harms(now, (idle_world, idle), (self.simulated, busy), Told(self.seen)))
        assert not harm, "; ".join(map(str, harm[:3]))
        self.seen += busy.writes
        self.compare()
        return blocked

    def make(self, made: ByHand) -> None:
        connect = {"x": "main", "y": "spare"}[made.connect]
        lives = dict(self.scenario.connects)[made.connect]
        if (connect, made.name) in self.world.configs():
            rest("DELETE", connector_url(self.world.workers[connect].url, made.name))
        self.world.by_hand(connect, made.name, made.config(self.servers, lives), made.state)

    def mirrored(self) -> None:
        """Let what runs come to rest."""
        done = run(self.simulated, self.world.running())
        assert not done.growing, done.growing
        self.seen += done.writes
        self.compare()

    def compare(self) -> None:
        """Wait until the real clusters hold what the simulated ones do, and all is at rest."""
        wanted = {
            (cluster, topic): Counter(id_.encode() for log in logs for id_ in log)
            for cluster, names in self.simulated.clusters.items()
            for topic, logs in names.items()
            if any(logs)
        }
        until(
            self.world.everything, lambda found: found == wanted, f"other records than foretold ({len(wanted)} topics)"
        )
        self.world.settle()
        assert self.world.everything() == wanted

    def apply(self, step: Step) -> bool:
        urls = {"x": self.world.main.url, "y": self.world.spare.url}
        connects = {name: (urls[name], cluster) for name, cluster in self.scenario.connects}
        ids = {cluster: _cluster_id(self.world, broker) for cluster, broker in self.broker.items()}
        self.tree.write(step.tree.yaml(connects, self.servers, ids))
        prune = ["--prune", "--allow", "deletes"] if step.prune else []
        blocked = self.tree.json("plan", *prune)["counts"]["blocked"] > 0
        self.tree.run("apply", "--yes", "--wait", "0", *prune, code=int(blocked))
        return blocked


def _cluster_id(world: World, broker: str) -> str:
    properties = (world.brokers[broker].directory / "data" / "meta.properties").read_text()
    return next(line.partition("=")[2] for line in properties.splitlines() if line.startswith("cluster.id="))
