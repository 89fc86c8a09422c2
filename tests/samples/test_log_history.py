"""When logs had reached an offset, from a real store: across hours, for several readers of one partition, by topic id."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mm2mgr.partitions import LogHistory, TopicPartition
from mm2mgr.samples.log_history import WantedLog, log_histories
from mm2mgr.samples.schema import KAFKA_OFFSETS
from mm2mgr.samples.store import SampleStore

from .rows import Sample, batches, data_files

HOUR = 3_600_000
NOW = 500_000 * HOUR + 1_800_000
ZERO = TopicPartition("orders", 0)


def sample(minutes_ago: float, end: int, **more: object) -> Sample:
    values: dict[str, object] = {
        "cluster": "A",
        "topic": "orders",
        "partition": 0,
        "time_ms": NOW - round(60_000 * minutes_ago),
        "end_offset": end,
        "start_offset": 0,
        "topic_id": "id",
        "record_bytes": None,
        "source": KAFKA_OFFSETS,
    }
    return Sample(**{**values, **more})  # type: ignore[arg-type]


def write(store: Path, samples: list[Sample]) -> None:
    for batch in batches(samples):
        SampleStore(store).append(batch)


def around(found: LogHistory, position: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the samples before and after the log reached an offset."""
    after = bisect_right(found.ends, position)
    pairs = list(zip(found.times_ms, found.ends, strict=True))
    return pairs[after - 1], pairs[after]


@pytest.fixture(scope="module")
def ten_hours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a sample every ten minutes, 100 records apart; records of the newest have 70 bytes."""
    store = tmp_path_factory.mktemp("ten-hours")
    write(store, [sample(10 * n, 10_000 - 100 * n, record_bytes=None if n else 70.0) for n in range(60)])
    return store


def test_the_samples_around_an_offset_are_found_hours_ago(ten_hours: Path) -> None:
    (found,) = log_histories(ten_hours, {"A": [WantedLog(ZERO, 7_450, "id")]}, NOW)["A"]
    before, after = around(found, 7_450)
    assert before == (NOW - 26 * 600_000, 7_400)
    assert after == (NOW - 25 * 600_000, 7_500)
    assert found.ends[-1] == 10_000
    assert len(found.times_ms) < 20, "of each hour between only what is needed"


def test_two_readers_of_one_partition_get_what_each_needs(ten_hours: Path) -> None:
    """A source that is mirrored to two targets."""
    wanted = [WantedLog(ZERO, 9_850, "id"), WantedLog(ZERO, 6_050, "id"), WantedLog(TopicPartition("gone", 3), 5)]
    near, far, gone = log_histories(ten_hours, {"A": wanted}, NOW)["A"]
    assert [pair[1] for pair in around(near, 9_850)] == [9_800, 9_900]
    assert [pair[1] for pair in around(far, 6_050)] == [6_000, 6_100]
    assert (near.record_bytes, far.record_bytes, gone) == (70.0, 70.0, LogHistory())


def test_samples_of_a_topic_that_was_created_again_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, [sample(30, 9_000, topic_id="old"), sample(20, 100), sample(10, 300, topic_id=None)])
    (found,) = log_histories(tmp_path, {"A": [WantedLog(ZERO, 200, "id")]}, NOW)["A"]
    assert found.ends == (100, 300)
    (any_id,) = log_histories(tmp_path, {"A": [WantedLog(ZERO, 200)]}, NOW)["A"]
    assert 9_000 in any_id.ends


def test_rates_of_other_sources_and_other_clusters_are_no_offsets(tmp_path: Path) -> None:
    write(tmp_path, [sample(20, -1, source="prometheus:x", record_bytes=5.0), sample(10, 300, cluster="B")])
    (found,) = log_histories(tmp_path, {"A": [WantedLog(ZERO, 200, "id")]}, NOW)["A"]
    assert found == LogHistory()


def test_a_store_that_does_not_exist_has_no_histories(tmp_path: Path) -> None:
    assert log_histories(tmp_path / "none", {"A": [WantedLog(ZERO, 200)]}, NOW) == {"A": [LogHistory()]}


def test_a_damaged_file_is_left_out_with_a_warning(tmp_path: Path) -> None:
    write(tmp_path, [sample(20, 100)])
    write(tmp_path, [sample(10, 300)])
    damaged = data_files(tmp_path)[0]
    damaged.write_bytes(b"PAR1 no longer")
    warnings: list[str] = []
    (found,) = log_histories(tmp_path, {"A": [WantedLog(ZERO, 200)]}, NOW, warnings.append)["A"]
    assert len(found.ends) == 1
    assert len(warnings) == 1
    assert damaged.name in warnings[0]


@pytest.mark.long
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    grown=st.lists(st.integers(0, 300), min_size=2, max_size=30),
    share=st.floats(0, 1),
    every=st.sampled_from([1.0, 7.0, 45.0]),
)
def test_the_bracket_is_that_of_all_samples(
    tmp_path_factory: pytest.TempPathFactory, grown: list[int], share: float, every: float
) -> None:
    """What is left out on the way changes nothing about when the log reached the offset."""
    store, end, samples = tmp_path_factory.mktemp("store"), 0, []
    for number, records in enumerate(grown):
        end += records
        samples.append(sample(every * (len(grown) - 1 - number), end))
    position = round(share * end)
    write(store, samples)
    (found,) = log_histories(store, {"A": [WantedLog(ZERO, position, "id")]}, NOW)["A"]
    times, ends = [one.time_ms for one in samples], [one.end_offset for one in samples]
    whole = LogHistory(tuple(times), tuple(ends))
    for kept, name in ((bisect_right(ends, position) - 1, "before"), (bisect_right(ends, position), "after")):
        if 0 <= kept < len(ends):
            pair = (whole.times_ms[kept], whole.ends[kept])
            assert pair in list(zip(found.times_ms, found.ends, strict=True)), name
