"""Measures the planner of balanced assignments beside naive ways: stock Connect's assignment in turn, and heaviest first without exchanges.

Prints, as multiples of the bound max(mean, heaviest partition, p_m + p_(m+1)): the busiest task for 36 published traffic
shapes and random sets, and the tasks needed; 30 days of drift with 1 % new partitions a day; and the time and memory for
half a million partitions. Exits with 1 when the planner is above 1.02 (or, where it is proved that bytes and
records together allow no assignment so low, above 1.005 of what they allow; 1.10 in drift), needs more than the packing bound
and one, is worse than stock, restarts more than once a day or when nothing changed, or takes over 30 s or 2 GiB. It
contacts nothing.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heapreplace
from pathlib import Path
from random import Random
from statistics import fmean

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from mm2mgr.assignment import Assignment, round_robin  # noqa: E402
from mm2mgr.balance.fresh import BalancePlan, FlowToPack  # noqa: E402
from mm2mgr.balance.lanes import plan_lanes  # noqa: E402
from mm2mgr.balance.planner import plan_balance  # noqa: E402
from mm2mgr.balance.rates import MeasuredRate  # noqa: E402
from mm2mgr.balance.rules import BalanceHistory, BalanceRules, LoadLook  # noqa: E402
from mm2mgr.balance.ways import compare_ways  # noqa: E402
from mm2mgr.partitions import TopicPartition  # noqa: E402
from tests.balance.shapes import (  # noqa: E402
    SCENARIOS,
    USABLE,
    Shape,
    issue_bound,
    published_shapes,
    random_shape,
    share_of,
    stock_order,
)

LANES_EVEN = 1.20
OVER_PROVED = 1.005  # the bound takes bytes and records each by itself: where both are short, none may reach it
EVEN, DRIFTING, BOUND_SECONDS, BOUND_BYTES = 1.02, 1.10, 30.0, 2 * 2**30
DAY = 86_400.0
LOOKS_A_DAY = 4
PARTITIONS = 500_000
Rates = dict[TopicPartition, MeasuredRate]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for, and return 1 where a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--scenarios", nargs="*", default=list(SCENARIOS), choices=list(SCENARIOS), help="published sets"
    )
    parser.add_argument("--seeds", type=int, default=1, help="how often each of their shapes is drawn")
    parser.add_argument("--random", type=int, default=1_000, help="random sets")
    parser.add_argument("--days", type=int, default=30, help="days of drift; 0: none")
    parser.add_argument("--drifting", nargs="*", default=["logging", "linkedin10k"], help="sets that drift")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="partitions of the large workspace; 0: none")
    parser.add_argument("--lanes", type=int, default=0, help="lanes only: the most connectors per flow")
    parser.add_argument("--one-flow", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--large-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.large_only:
        return plan_large(options.partitions, options.one_flow)
    if options.lanes:
        shapes = published_shapes(tuple(options.scenarios))
        missed = lanes("published shapes", shapes, options.lanes)
        missed += lanes("random sets", map(random_shape, range(options.random)), options.lanes)
        print("missed: " + ", ".join(missed) if missed else "every bound is held")
        return bool(missed)
    missed = [*published(options.scenarios, options.seeds), *random_sets(options.random)]
    for name in options.drifting if options.days else ():
        missed += drift(name, options.days)
    if options.days:
        missed += unchanged(options.days)
    for form in ([], ["--one-flow"]) if options.partitions else ():
        child = [sys.executable, __file__, "--large-only", "--partitions", str(options.partitions), *form]
        missed += ["the large workspace"] * subprocess.run(child, check=False).returncode
    print("missed: " + ", ".join(missed) if missed else "every bound is held")
    return bool(missed)


@dataclass(frozen=True)
class Figures:
    """What the ways make of one shape: multiples of the bound at the planner's number of tasks, and tasks needed."""

    tasks: int
    packing_bound: int
    stock: float
    plain: float
    planned: float
    stock_needed: int | None
    searched: int
    proved: float

    @property
    def is_uneven(self) -> bool:
        return self.planned > max(EVEN, OVER_PROVED * self.proved)

    def missed_bounds(self, name: str) -> list[str]:
        return [
            f"{name}: {what}"
            for what, is_missed in (
                (f"{self.planned:.3f} of the bound", self.is_uneven),
                ("more tasks than the packing bound and one", self.tasks > self.packing_bound + 1),
                ("worse than stock", self.planned > self.stock + 1e-9),
            )
            if is_missed
        ]


def measure(shape: Shape, with_needed: bool) -> Figures:
    """Plan a shape and judge the ways, with loads added up anew from the assignments."""
    plan = plan_balance(shape.rates, shape.rates)
    tasks, bound = plan.task_count, issue_bound(shape.rates, plan.task_count)
    flow = FlowToPack(shape.rates, shape.rates, BalanceRules())
    stock = compare_ways(plan, shape.rates)[0] if with_needed else None
    return Figures(
        tasks,
        flow.least_tasks,
        busiest(shape.rates, round_robin(stock_order(shape.rates), tasks)) / bound,
        busiest(shape.rates, heaviest_first(shape.rates, tasks)) / bound,
        busiest(shape.rates, plan.assignment) / bound,
        stock.tasks_needed if stock else None,
        stock.searched if stock else 0,
        flow.weights.least_load(tasks) / bound,
    )


def busiest(rates: Rates, assignment: Assignment) -> float:
    return max(share_of(rates, task) for task in assignment.tasks)


def heaviest_first(rates: Rates, tasks: int) -> Assignment:
    """Assign plainly: the heaviest partition first, each to the task with the fewest bytes so far (LPT)."""
    heap: list[tuple[float, int]] = [(0.0, task) for task in range(tasks)]
    held: list[list[TopicPartition]] = [[] for _ in range(tasks)]
    for name in sorted(rates, key=lambda name: -rates[name].bytes_per_second):
        load, task = heap[0]
        held[task].append(name)
        heapreplace(heap, (load + rates[name].bytes_per_second, task))
    return Assignment(tuple(map(tuple, held)))


def published(names: Sequence[str], seeds: int) -> list[str]:
    """Print a line per shape: the mean over the seeds, and for the planner also the worst."""
    missed: list[str] = []
    if names:
        print(f"{'shape':24}{'tasks':>6}{'bound':>6}{'stock':>7}{'plain':>7}{'plan':>7}{'worst':>7}{'stock needs':>13}")
    for shapes in zip(*(published_shapes(tuple(names), seed) for seed in range(seeds)), strict=True):
        figures = [measure(shape, seed == 0) for seed, shape in enumerate(shapes)]
        first = figures[0]
        means = [fmean(getattr(figure, way) for figure in figures) for way in ("stock", "plain", "planned")]
        worst = max(figure.planned for figure in figures)
        needed = str(first.stock_needed or f"over {first.searched}")
        line = "".join(f"{ratio:7.3f}" for ratio in (*means, worst))
        print(f"{shapes[0].name:24}{first.tasks:6}{first.packing_bound:6}{line}{needed:>13}", flush=True)
        missed += [miss for figure in figures for miss in figure.missed_bounds(shapes[0].name)]
    return missed


def random_sets(count: int) -> list[str]:
    """Print mean and worst of random sets, those with bytes only and those in which records count, too."""
    missed: list[str] = []
    by_kind: dict[str, list[Figures]] = {"bytes": [], "bytes and records": []}
    for seed in range(count):
        figures = measure(random_shape(seed), with_needed=False)
        by_kind["bytes" if seed % 3 else "bytes and records"].append(figures)
        missed += figures.missed_bounds(f"random set {seed}")
    for kind, sets in by_kind.items():
        if sets:
            ways = {"stock": "stock", "plain LPT": "plain", "plan": "planned"}
            texts = [
                f"{name} {fmean(getattr(planned_set, way) for planned_set in sets):.3f} (worst {max(getattr(planned_set, way) for planned_set in sets):.3f})"
                for name, way in ways.items()
            ]
            over = max(planned_set.tasks - planned_set.packing_bound for planned_set in sets)
            above = [planned_set for planned_set in sets if planned_set.planned > EVEN]
            proofs = "".join(f" ({shape.planned:.3f}, where none is below {shape.proved:.3f})" for shape in above)
            print(
                f"{len(sets)} random sets, {kind}: {', '.join(texts)}; {len(above)} above {EVEN}{proofs}; at most {over} more tasks than the packing bound"
            )
    return missed


def lanes(name: str, shapes: Iterable[Shape], most: int) -> list[str]:
    """Print what lanes make of shapes with as many tasks as the planner has: mean and worst, beside one stock connector."""
    ratios, stocks, connectors, worse = [], [], [], 0
    for shape in shapes:
        tasks = plan_balance(shape.rates, shape.rates).task_count
        planned = plan_lanes(FlowToPack(shape.rates, shape.rates, BalanceRules()), tasks, most)
        bound = issue_bound(shape.rates, tasks)
        stock = busiest(shape.rates, round_robin(stock_order(shape.rates), tasks))
        ratios.append(planned.way.busiest / bound)
        stocks.append(stock / bound)
        connectors.append(planned.connectors)
        worse += planned.way.busiest > stock + 1e-9
    print(
        f"{len(ratios)} {name}, at most {most} connectors: lanes {fmean(ratios):.3f} (worst {max(ratios):.3f}) with"
        f" {fmean(connectors):.1f} connectors on average (most {max(connectors)}), stock {fmean(stocks):.3f} (worst"
        f" {max(stocks):.3f}); {worse} worse than stock",
        flush=True,
    )
    return [f"lanes of {name}"] * (fmean(ratios) > LANES_EVEN or worse > 0)


class Drift:
    """A flow whose topics drift by a tenth a day, and that gets 1 % new partitions a day, of new and of old topics."""

    def __init__(self, rates: Rates, seed: int) -> None:
        self.rates, self._chance, self._added = dict(rates), Random(seed), 0

    def next_day(self) -> None:
        chance = self._chance
        factors = {topic: chance.lognormvariate(0, 0.1) for topic in sorted({name.topic for name in self.rates})}
        old = sorted(self.rates)
        self.rates = {
            name: MeasuredRate(min(0.95 * USABLE, self.rates[name].bytes_per_second * factors[name.topic]))
            for name in old
        }
        for _ in range(max(1, len(old) // 100)):
            like = chance.choice(old)
            if chance.random() < 0.5:
                self._added += 1
                name = TopicPartition(f"new{self._added}", 0)
            else:
                name = TopicPartition(like.topic, max(n.partition for n in self.rates if n.topic == like.topic) + 1)
            self.rates[name] = MeasuredRate(self.rates[like].bytes_per_second)


def drift(scenario: str, days: int) -> list[str]:
    """Print how even a flow is kept at the end of each day, with which restarts and moves, beside stock and what never moves."""
    (shape,) = [shape for shape in published_shapes((scenario,)) if " 1.1 0.5 " in shape.name + " "]
    traffic = Drift(dict(shape.rates), 1)
    watched = Watched(plan_balance(traffic.rates, traffic.rates).assignment)
    ends, before, stocks, blinds = [], [], [], []
    blind = watched.assignment
    for _ in range(days):
        measured = dict(traffic.rates)
        traffic.next_day()
        watched.look(traffic.rates, {**{name: traffic.rates[name] for name in measured}})
        before.append(over_bound(traffic.rates, watched.assignment))
        for _ in range(LOOKS_A_DAY - 1):
            watched.look(traffic.rates, traffic.rates)
        ends.append(over_bound(traffic.rates, watched.assignment))
        blind = with_new_ones(blind, traffic.rates)
        blinds.append(over_bound(traffic.rates, blind))
        stocks.append(over_bound(traffic.rates, round_robin(stock_order(traffic.rates), len(watched.assignment.tasks))))
    most = max(watched.rounds_in_a_day(day) for day in range(days))
    moves = 100 * watched.moved / (days * len(shape.rates))
    print(
        f"{days} days of drift, {scenario}, {len(shape.rates)} → {len(traffic.rates)} partitions: at the end of a day"
        f" {fmean(ends):.3f} (worst {max(ends):.3f}), on a day's first look worst {max(before):.3f}; {len(watched.rounds)}"
        f" restarts, at most {most} a day, {moves:.2f} % of the partitions moved a day; stock {fmean(stocks):.2f} (worst"
        f" {max(stocks):.2f}), never moved {fmean(blinds):.2f} (worst {max(blinds):.2f})",
        flush=True,
    )
    return [f"drift of {scenario}"] * (max(ends) > DRIFTING or most > 1)


def unchanged(days: int) -> list[str]:
    """Print the restarts of a flow in which nothing changes but a tenth of noise in each measurement."""
    (shape, *_) = published_shapes(("logging",))
    watched, chance = Watched(plan_balance(shape.rates, shape.rates).assignment), Random(2)
    for _ in range(days * LOOKS_A_DAY):
        watched.look(shape.rates, shape.rates)
    same = len(watched.rounds)
    for _ in range(days * LOOKS_A_DAY):
        noise = {
            name: replace(rate, bytes_per_second=rate.bytes_per_second * chance.uniform(0.9, 1.1))
            for name, rate in shape.rates.items()
        }
        watched.look(shape.rates, noise)
    print(f"{days} days without a change: {same} restarts; with ±10 % of noise: {len(watched.rounds) - same}")
    return ["restarts without a change"] * bool(same)


class Watched:
    """A connector that is looked at some times a day, and assigned as its plans say."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment, self.moved = assignment, 0
        self.rounds: tuple[float, ...] = ()
        self._looks: tuple[LoadLook, ...] = ()
        self._now = 0.0

    def look(self, partitions: Iterable[TopicPartition], measured: Rates) -> BalancePlan:
        self._now += DAY / LOOKS_A_DAY
        history = BalanceHistory(self._now, self._looks, self.rounds, is_off_peak=True)
        plan = plan_balance(partitions, measured, self.assignment, BalanceRules(), history)
        self.assignment = plan.assignment  # partitions that are new are where the plugin puts them
        if plan.look:
            self._looks = (*self._looks[-4:], plan.look)
        if plan.is_change:
            self.rounds += (self._now,)
            self.moved += len(plan.moves)
        return plan

    def rounds_in_a_day(self, day: int) -> int:
        return sum(day * DAY < seconds <= (day + 1) * DAY for seconds in self.rounds)


def over_bound(rates: Rates, assignment: Assignment) -> float:
    return busiest(rates, assignment) / issue_bound(rates, len(assignment.tasks))


def with_new_ones(assignment: Assignment, rates: Rates) -> Assignment:
    """Add new partitions to the tasks with the fewest, and move nothing."""
    tasks = [list(task) for task in assignment.tasks]
    for name in sorted(rates.keys() - assignment.task_of.keys()):
        min(tasks, key=len).append(name)
    return Assignment(tuple(map(tuple, tasks)))


def plan_large(partitions: int, one_flow: bool) -> int:
    """Plan a large workspace in this process, print time and memory, and return 1 above a bound."""
    flows = [partitions] if one_flow else [500] * (partitions // 500)
    chance = Random(0)
    rates: list[Rates] = []
    for flow, size in enumerate(flows):
        topics = max(1, size * 9 // 50)
        names = [TopicPartition(f"f{flow}.events-{place % topics}", place // topics) for place in range(size)]
        rates.append(
            {name: MeasuredRate(chance.lognormvariate(10.0, 1.8), chance.lognormvariate(3.0, 1.0)) for name in names}
        )
    spent, began = time.process_time(), time.perf_counter()
    plans = [plan_balance(measured, measured) for measured in rates]
    fresh = time.process_time() - spent
    looks = [plan_balance(measured, measured, plan.assignment) for measured, plan in zip(rates, plans, strict=True)]
    spent, began = time.process_time() - spent, time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    worst = max(plan.over_bound for plan in plans)
    unchanged_count = sum(not plan.is_change for plan in looks)
    print(
        f"{len(flows)} {'flow' if one_flow else 'flows'}, {sum(flows)} partitions, {sum(p.task_count for p in plans)} tasks: {fresh:.1f} s CPU"
        f" to plan, {spent - fresh:.1f} s to look again ({unchanged_count} kept; bound of each {BOUND_SECONDS:.0f} s), {began:.1f} s wall clock;"
        f" peak {memory / 2**30:.2f} GiB (bound {BOUND_BYTES / 2**30:.0f} GiB); worst {worst:.3f} of the bound",
        flush=True,
    )
    return int(fresh > BOUND_SECONDS or spent - fresh > BOUND_SECONDS or memory > BOUND_BYTES)


if __name__ == "__main__":
    sys.exit(main())
