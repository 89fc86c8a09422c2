"""What mm2mgr predicts of a flow beside what its connector does: real brokers, real MirrorMaker, skewed traffic made from a seed.

    python benchmarks/predicted_load.py [--sets N] [--at-once N] [--seed N] [--spans HISTORY INTERVAL SAMPLED MEASURED]

Each set is produced steadily, sampled by mm2mgr, rolled up and sized for several tasks, each of a capacity that no load is close to; then
its connector is created with that many tasks, and what arrives at the target is measured while traffic goes on. One line per set, then a
count for each bar; exits with 1 when a bar is missed. Sets that run at once take about three minutes together, and a core.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.sizing.traffic import make_sets  # noqa: E402  # the repository must be on the path first
from tests.sizing.traffic_run import Spans, run, world  # noqa: E402
from tests.sizing.traffic_verdict import FORESEEN_SHARE, RATES_WITHIN, Outcome  # noqa: E402

_BLIND_DRAWS = 50
_COLUMNS = "{:<7} {:<18} {:>4} {:>5} {:>8} {:>4} {:>9} {:>9} {:>7} {:>7} {:>7} {:>7} {:>5}  {}"


def line(one: Outcome) -> str:
    """Say what became of one set."""
    hot = f"{len(one.sizing.hot_partitions)}/{len(one.truly_hot)}"
    mean_error = max(one.errors(one.mean), key=abs)
    log_share = sum(one.in_log.values()) / sum(one.measured.values()) - 1
    said = "; ".join([*one.faults(), *([] if one.foreseen else ["assignment not foreseen"])]) or "ok"
    rates = [f"{rate / 1e3:.1f}" for rate in (one.usable, one.sizing.busiest_bytes_per_second, one.measured_busiest)]
    shares = [f"{share:+.1%}" for share in (one.busiest_error, one.task_error, mean_error, log_share)]
    count = (len(one.order), rates[0], one.sizing.tasks)
    smallest = "-" if one.smallest is None else one.smallest
    return _COLUMNS.format(one.name, one.skew, *count[:1], smallest, *count[1:], *rates[1:], *shares, hot, said)


def summary(outcomes: Sequence[Outcome]) -> bool:
    """Print a count for each bar; return whether all are reached."""
    total, foreseen = len(outcomes), sum(one.foreseen for one in outcomes)
    cold = sum(not one.truly_hot for one in outcomes)
    print(f"\nof {total} sets, {cold} of them without a hot partition")
    print(f"  assignment foreseen before the connector exists {foreseen} (bar {FORESEEN_SHARE:.0%})")
    print(f"  assignment read back replayed at another number {sum(one.replayed for one in outcomes)}")
    print(
        f"  busiest task within {RATES_WITHIN:.0%}                         {_within([o.busiest_error for o in outcomes])}"
    )
    print(
        f"  every task within {RATES_WITHIN:.0%}                           {_within([o.task_error for o in outcomes])}"
    )
    print(f"  a task above usable although some number does   {sum(one.overloaded for one in outcomes)}")
    print(f"  more tasks than the smallest number plus one    {sum(one.too_many for one in outcomes)}")
    hot = sum(len(one.truly_hot) for one in outcomes)
    print(f"  hot partitions exact                            {sum(one.hot_is_exact for one in outcomes)} ({hot} hot)")
    return foreseen >= FORESEEN_SHARE * total and not any(one.faults() for one in outcomes)


def _within(errors: Sequence[float]) -> str:
    sizes = sorted(map(abs, errors))
    return f"{sum(size <= RATES_WITHIN for size in sizes)} (median {median(sizes):.1%}, worst {sizes[-1]:.1%})"


def sweep(outcomes: Sequence[Outcome], seed: int) -> None:
    """Print how the same rates are judged at capacities drawn blindly, where a load may lie right at the line."""
    chance = random.Random(seed)
    judged = [
        one.at(sum(one.measured.values()) / chance.uniform(1.2, 8)) for one in outcomes for _ in range(_BLIND_DRAWS)
    ]
    over = [one.load - 1 for one in judged if one.overloaded]
    lines = [abs(one.measured[p] / one.usable - 1) for one in judged for p in one.truly_hot ^ one.said_hot]
    print(f"the same rates at {len(judged)} capacities drawn blindly, on the line or not:")
    print(f"  overloaded {len(over)}, at most by {max(over, default=0):.1%}")
    print(f"  more tasks than the smallest number plus one {sum(one.too_many for one in judged)}")
    print(f"  hot partitions judged otherwise {len(lines)}, at most {max(lines, default=0):.1%} from the line")


def main() -> int:
    """Print a line per set and the summary; return 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description="Predicted against measured load of tasks.")
    parser.add_argument("--sets", type=int, default=36)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--first", type=int, default=0, help="number of the first set of the series")
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--spans", type=float, nargs=4, metavar="SECONDS", help="history, interval, sampled, measured")
    given = parser.parse_args()
    spans, outcomes = Spans(*given.spans) if given.spans else Spans(), list[Outcome]()
    heads = ("parts", "least", "usable", "n", "busiest", "real", "error", "task", "mean", "in log", "hot", "verdict")
    print(_COLUMNS.format("set", "skew", *heads))
    with tempfile.TemporaryDirectory() as folder, world(Path(folder)) as brokers:
        for first in range(given.first, given.first + given.sets, given.at_once):
            count = min(given.at_once, given.first + given.sets - first)
            sets = make_sets(given.seed, count, first)
            for one in run(brokers, sets, Path(folder) / f"samples-{first}", given.seed + first, spans):
                outcomes.append(one)
                print(line(one), flush=True)
    reached = summary(outcomes)
    sweep(outcomes, given.seed)
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
