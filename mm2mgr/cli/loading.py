"""How the load commands go about it: which topics to sample, which rate to size with, what to write and to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from mm2mgr.cli.estate import Estate
from mm2mgr.errors import Mm2mgrError
from mm2mgr.output.console import complain, say, say_json, talk, working
from mm2mgr.output.load_text import say_rates, say_sizings
from mm2mgr.partitions import TopicPartition

if TYPE_CHECKING:
    from mm2mgr.samples.offsets import Round
    from mm2mgr.sizing.tasks import Sizing
    from mm2mgr.throughput.rates import PartitionRate, Statistic
    from mm2mgr.topology import Flow


def run_sample(
    estate: Estate, store: Path, interval_seconds: float, duration_seconds: float | None, aliases: Sequence[str]
) -> int:
    """Sample the source clusters of the tree's flows; return the exit code."""
    from mm2mgr.observe.access import kafka_access
    from mm2mgr.samples.offsets import Schedule, Source, follow
    from mm2mgr.samples.store import SampleStore

    flows: dict[str, list[Flow]] = {}
    for flow in estate.topology.flows:
        flows.setdefault(flow.source.alias, []).append(flow)
    unknown = [alias for alias in aliases if alias not in flows]
    if unknown or not flows:
        raise Mm2mgrError(
            f"no flow reads from {', '.join(unknown) or 'any cluster'}",
            hint=f"source clusters: {', '.join(sorted(flows)) or 'none'}",
        )
    chosen = {alias: flows[alias] for alias in (aliases or flows)}
    sources = [Source(kafka_access(each[0].source), _any_carries(each)) for each in chosen.values()]
    ever_read: set[str] = set()

    def progress(round_: Round) -> None:
        ever_read.update(alias for alias in chosen if alias not in round_.failures)
        talk(f"round {round_.number}: {round_.samples} samples")
        for error in round_.failures.values():
            talk(f"  {error.message}", style="yellow")
        for alias, unread in round_.unread.items():
            talk(f"  {alias}: {len(unread)} partitions could not be read", style="yellow")

    try:
        kept = follow(sources, Schedule(interval_seconds, duration_seconds), SampleStore(store), progress)
        say(f"{kept} samples of {len(chosen)} clusters in {store}")
    except KeyboardInterrupt:
        say(f"stopped; the samples so far are in {store}")
    never = sorted(set(chosen) - ever_read)
    if never:
        complain(f"never read: {', '.join(never)}", "check bootstrap_servers and access: of these clusters")
    return 1 if never else 0


def _any_carries(flows: Sequence[Flow]) -> Callable[[str], bool]:
    return lambda topic: any(flow.carries(topic) for flow in flows)


def run_throughput(samples: Path, result: Path, window: float | None, top: int, *, show: bool, output: str) -> int:
    """Run the Spark job (unless `show`) and print the busiest partitions."""
    if not show:
        _spark_job(samples, result, window)
    from mm2mgr.throughput.table import read_throughput

    rates = sorted(read_throughput(result), key=lambda rate: -(rate.bytes_per_second_p95 or 0))
    if output == "json":
        say_json([asdict(rate) for rate in (rates[:top] if top else rates)])
    else:
        say_rates(rates, top)
    return 0


def _spark_job(samples: Path, result: Path, window: float | None) -> None:
    from mm2mgr.sandbox.java import find_java, spark_java_home

    home = spark_java_home(find_java())
    from mm2mgr.throughput.job import Job, run

    since_ms = None
    if window is not None:
        from mm2mgr.samples.store import SampleStore

        since_ms = SampleStore(samples).newest_ms() - round(window * 1000)
    with working(f"computing throughput of {samples} with Spark"):
        count = run(Job(samples, result, since_ms), java_home=home, log_file=result / "spark.log")
    talk(f"throughput of {count} partitions in {result}")


def run_size(
    estate: Estate, names: Sequence[str], result: Path, statistic: Statistic, *, dry_run: bool, output: str
) -> int:
    """Size the named flows and write the overrides file; flows whose source cannot be read keep what they have."""
    from mm2mgr.sizing.overrides import overrides_document
    from mm2mgr.spec.sizing_file import sizing_path, write_sizing
    from mm2mgr.throughput.table import read_throughput

    flows = estate.flows(names)
    rates = read_throughput(result)
    path = sizing_path(estate.files)
    sizings, failures = _size_flows(flows, rates, statistic)
    if output == "json":
        say_json({"sizings": [sizing.to_dict() for sizing in sizings], "failures": failures})
    else:
        say_sizings(sizings, {flow.id: flow.tasks for flow in flows})
    for message in failures.values():
        complain(f"{message}; its flows are not sized", "their entries stay as they are")
    if not dry_run and sizings:
        document = overrides_document(sizings, _window(rates), f"{statistic} of {result}")
        changed = write_sizing(path, document["sizing"], {flow.id for flow in estate.topology.flows})
        talk(f"{path} {'written: review it, then plan' if changed else 'is up to date'}")
    return 1 if failures else 0


def _size_flows(
    flows: Sequence[Flow], rates: Sequence[PartitionRate], statistic: Statistic
) -> tuple[list[Sizing], dict[str, str]]:
    from mm2mgr.kafka.client import Kafka
    from mm2mgr.observe.access import kafka_access
    from mm2mgr.sizing.tasks import Bounds, Capacity, Rules, size_flow
    from mm2mgr.throughput.rates import bytes_per_second

    clusters = {flow.source.alias: flow.source for flow in flows}

    def partitions(alias: str) -> list[TopicPartition] | Mm2mgrError:
        try:
            with Kafka(kafka_access(clusters[alias])) as kafka:
                return [TopicPartition(t, p) for t, info in kafka.topics().items() for p in range(info.partitions)]
        except Mm2mgrError as error:
            return error

    with ThreadPoolExecutor(max_workers=16) as threads:
        existing = dict(zip(clusters, threads.map(partitions, clusters), strict=True))
    failures = {alias: found.message for alias, found in existing.items() if isinstance(found, Mm2mgrError)}
    sizings = []
    for flow in flows:
        found = existing[flow.source.alias]
        if isinstance(found, Mm2mgrError):
            continue
        known = bytes_per_second(rates, flow.source.alias, statistic)
        measured = {partition: rate for partition, rate in known.items() if flow.carries(partition.topic)}
        wanted = dict.fromkeys(measured, False) | {each: True for each in found if flow.carries(each.topic)}
        tasks = flow.settings.tasks
        rules = Rules(Capacity(tasks.capacity, tasks.threshold), Bounds(tasks.min, tasks.limit), tasks.default_rate)
        sizings.append(size_flow(flow.id, wanted, measured, rules))
    return sizings, failures


def _window(rates: Sequence[PartitionRate]) -> str:
    if not rates:
        return "nothing measured"
    start, end = min(rate.window_start_ms for rate in rates), max(rate.window_end_ms for rate in rates)
    return "/".join(f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}" for ms in (start, end))
