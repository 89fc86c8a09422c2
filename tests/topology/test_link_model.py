"""The link model against measured runs, and what it says about each kind of limit."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from mm2mgr.json_values import to_json
from mm2mgr.link import MIB, BrokerLimits, Clients, FlowTraffic, Leg, Route, predict
from tests.topology.link_runs import AUTO, BEST, LARGE_TOPIC, LATER_RUNS, POLLED_RUNS, RUNS, STOCK, TUNED, Run

LINK = Leg(0.1, 25e6)
MB = 1e6


def _forecast(run: Run) -> float:
    found = predict(Route.over_link(run.leg, run.placement), run.clients, run.traffic, run.brokers, run.brokers)
    return found.flow / MB


@pytest.mark.parametrize("runs", [RUNS, LATER_RUNS], ids=["first", "later"])
def test_the_model_against_runs_not_used_to_fit_it(runs: tuple[Run, ...]) -> None:
    blind = [run for run in runs if run.measured > 0.1 and not run.used_to_fit]
    errors = [abs(_forecast(run) / run.measured - 1) for run in blind]
    assert len(errors) >= 24
    assert statistics.median(errors) <= 0.1


def test_the_model_where_one_poll_returns_a_whole_fetch() -> None:
    errors = [abs(_forecast(run) / run.measured - 1) for run in POLLED_RUNS]
    assert statistics.median(errors) <= 0.1
    assert max(errors) <= 0.25
    apart = [replace(run, clients=replace(run.clients, poll_records=500)) for run in POLLED_RUNS[:3]]
    assert all(_forecast(run) < 0.95 * _forecast(polled) for run, polled in zip(apart, POLLED_RUNS, strict=False))


def test_a_run_that_stalled_is_never_said_to_work() -> None:
    for run in (*RUNS, *LATER_RUNS):
        assert (_forecast(run) == 0) is (run.measured <= 0.1), run


@pytest.mark.parametrize(
    ("placement", "clients", "brokers", "traffic", "limit"),
    [
        ("target", Clients(), AUTO, FlowTraffic(12, 4), "client window"),
        ("target", replace(TUNED, partition_fetch_bytes=16 * MIB), STOCK, FlowTraffic(), "broker window"),
        ("target", replace(TUNED, partition_fetch_bytes=MIB), AUTO, FlowTraffic(), "request/response"),
        ("target", TUNED, AUTO, FlowTraffic(12, 4), "bandwidth"),
        ("target", Clients(), AUTO, FlowTraffic(2, 12), "partitions"),
        ("source", Clients(), AUTO, FlowTraffic(), "batch"),
        ("source", BEST, STOCK, FlowTraffic(), "broker window"),
        ("source", BEST, AUTO, FlowTraffic(12, 4), "bandwidth"),
        ("target", Clients(partition_fetch_bytes=50 * MIB), AUTO, FlowTraffic(), "stall"),
    ],
)
def test_the_limit_that_binds(
    placement: str, clients: Clients, brokers: BrokerLimits, traffic: FlowTraffic, limit: str
) -> None:
    found = predict(Route.over_link(LINK, placement), clients, traffic, brokers, brokers)  # type: ignore[arg-type]
    assert found.limit == limit
    assert to_json(found)["verdict"] == found.verdict


def test_without_a_long_leg_the_worker_decides() -> None:
    found = predict(Route("target"), Clients(), FlowTraffic(4, 2))
    assert (found.task, found.limit) == (60 * MB, "worker")
    assert predict(Route.over_link(Leg(0.0)), Clients(), FlowTraffic()).task == pytest.approx(60 * MB)


def test_of_two_legs_the_slower_decides() -> None:
    near, far = Leg(0.02, 125e6), Leg(0.1, 25e6)
    both = predict(Route("elsewhere", near, far), Clients(), FlowTraffic(12, 4), AUTO, AUTO)
    assert both.flow == predict(Route("source", writing=far), Clients(), FlowTraffic(12, 4), AUTO, AUTO).flow
    assert both.flow < predict(Route("target", reading=near), Clients(), FlowTraffic(12, 4), AUTO, AUTO).flow


def test_compression_counts_where_kafka_counts_it() -> None:
    """A fetch counts stored bytes, so a compressed topic brings more records; a batch is full before it is compressed."""
    reading, writing = Route.over_link(LINK), Route.over_link(LINK, "source")
    plain, packed = FlowTraffic(12, 4), FlowTraffic(12, 4, compression=4)
    assert predict(reading, TUNED, packed, AUTO).flow > 3 * predict(reading, TUNED, plain, AUTO).flow
    sent = FlowTraffic(12, 4, recompression=4)
    assert (
        predict(writing, Clients(), sent, target=AUTO).flow < 1.2 * predict(writing, Clients(), plain, target=AUTO).flow
    )
    assert predict(writing, BEST, sent, target=AUTO).flow > 3 * predict(writing, BEST, plain, target=AUTO).flow


def test_tiny_and_huge_records() -> None:
    """Tiny ones cost the worker; a huge one is fetched and sent whole, whatever the limits say (KIP-74)."""
    tiny = predict(Route.over_link(Leg(0.001)), TUNED, FlowTraffic(record_bytes=100), AUTO)
    assert (tiny.limit, tiny.task) == ("worker", pytest.approx(10 * MB, rel=0.2))
    slow, huge = Leg(0.1, 2e5), FlowTraffic(record_bytes=10 * MB)
    assert "a fetch takes 5" in predict(Route.over_link(slow), TUNED, huge, AUTO).stall
    assert "a request takes 5" in predict(Route.over_link(slow, "source"), BEST, huge, AUTO, AUTO).stall


def test_more_brokers_are_more_connections() -> None:
    three = replace(STOCK, brokers=3)
    one, more = (predict(Route.over_link(LINK), TUNED, FlowTraffic(12), each).task for each in (STOCK, three))
    assert more == pytest.approx(3 * one, rel=0.1)


def test_memory_of_the_measured_workers() -> None:
    """512 MiB held the tuned recipe (355 MiB after collections) and not the article's (OutOfMemoryError)."""
    tuned = predict(Route.over_link(LINK), TUNED, FlowTraffic(12, 4), AUTO)
    article = predict(
        Route.over_link(LINK),
        replace(TUNED, partition_fetch_bytes=50 * MIB, fetch_bytes=50 * MIB),
        FlowTraffic(12, 4),
        AUTO,
    )
    assert tuned.fits(512 * MIB, 4)
    assert not article.fits(512 * MIB, 4)


def test_large_batches_need_a_topic_that_accepts_them() -> None:
    large = replace(BEST, batch_bytes=50 * MIB, buffer_bytes=128 * MIB, request_bytes=60 * MIB)
    assert "refused and split" in predict(Route.over_link(LINK, "source"), large, FlowTraffic(), AUTO, AUTO).stall
    assert predict(Route.over_link(LINK, "source"), large, FlowTraffic(), AUTO, LARGE_TOPIC).flow > 10 * MB
