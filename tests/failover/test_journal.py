"""The journal of a failover comes back from its texts as it was, whole or not at all, and fits into Kafka's records."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.errors import Mm2mgrError
from mm2mgr.failover.group_offsets import OffsetChange
from mm2mgr.failover.journal import CHUNK_BYTES, FailoverJournal, journal_texts, key_of, parse_journal, stale_keys
from mm2mgr.partitions import TopicPartition
from tests.examples import draw_examples

PARTITION = TopicPartition("a.orders", 3)
JOURNAL = FailoverJournal(
    "f1",
    "a->east",
    "team",
    "planned",
    100.5,
    "ops",
    {"stop": 120.0, "ends": 130.0},
    {"east/mirror": "RUNNING"},
    {PARTITION: 50},
    {TopicPartition("orders", 3): 40},
    {},
    {"billing": {PARTITION: OffsetChange(None, 44)}},
)

offsets = st.integers(0, 2**62)
partitions = st.builds(TopicPartition, st.text(max_size=8), st.integers(0, 9))
changes = st.builds(OffsetChange, st.none() | offsets, offsets)
journals = st.builds(
    FailoverJournal,
    st.text(max_size=5),
    st.just("a->east"),
    st.just("team"),
    st.sampled_from(["planned", "disaster", "cutoff"]),
    st.floats(0, 2e9),
    st.text(max_size=5),
    st.dictionaries(st.text(max_size=5), st.floats(0, 2e9)),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5)),
    st.dictionaries(partitions, offsets),
    st.dictionaries(partitions, offsets),
    st.dictionaries(partitions, offsets),
    st.dictionaries(st.text(max_size=5), st.dictionaries(partitions, changes, min_size=1)),
    st.sampled_from(["", "abandoned", "done"]),
)


@draw_examples(15)
@given(journals)
def test_a_journal_comes_back_as_it_was(journal: FailoverJournal) -> None:
    assert parse_journal(journal_texts(journal), "team", "a->east") == journal


def test_there_is_none_where_nobody_wrote_one() -> None:
    assert parse_journal({"entry/1": "{}", **journal_texts(JOURNAL)}, "team", "b->east") is None


@pytest.mark.parametrize(
    ("alter", "reason"),
    [
        (lambda head: {**head, "version": 2}, "of version 2; this mm2mgr reads 1"),
        (lambda head: {**head, "chunks": ["nowhere"]}, "chunk nowhere is missing"),
        (lambda head: {**head, "mode": "hasty"}, "unknown mode 'hasty'"),
        (lambda head: {**head, "owner": "others"}, "names another pair or owner"),
        (lambda head: {name: value for name, value in head.items() if name != "stopped"}, "KeyError: 'stopped'"),
        (lambda head: [head], "of version None"),
    ],
)
def test_what_cannot_be_read_is_an_error_and_never_none(alter: object, reason: str) -> None:
    key, texts = key_of("team", "a->east"), journal_texts(JOURNAL)
    texts[key] = json.dumps(alter(json.loads(texts[key])))  # type: ignore[operator]
    with pytest.raises(Mm2mgrError, match=reason) as caught:
        parse_journal(texts, "team", "a->east")
    assert "--forget" in (caught.value.hint or "")


def test_an_altered_or_cut_text_is_an_error() -> None:
    key, texts = key_of("team", "a->east"), journal_texts(JOURNAL)
    (chunk,) = (name for name in texts if name != key)
    for wrong in ({chunk: texts[chunk].replace("50", "51")}, {key: texts[key][:20]}, {key: "null"}):
        with pytest.raises(Mm2mgrError):
            parse_journal({**texts, **wrong}, "team", "a->east")


def test_a_kill_between_chunks_and_head_leaves_the_journal_before_it() -> None:
    before, after = journal_texts(JOURNAL), journal_texts(replace(JOURNAL, target_ends={PARTITION: 99}))
    texts = {**before}
    for key, text in after.items():
        assert parse_journal(texts, "team", "a->east") == JOURNAL
        texts[key] = text
    written = parse_journal(texts, "team", "a->east")
    assert written
    assert written.target_ends == {PARTITION: 99}
    assert stale_keys(texts, written) == [key for key in before if key not in after]


def test_a_thousand_groups_with_a_hundred_partitions_fit_into_records() -> None:
    groups = {
        f"group-of-an-application-{number}": {
            TopicPartition(f"source.some.domain.events.v{topic}", partition): OffsetChange(
                10**12 + number, 10**12 + topic
            )
            for topic in range(10)
            for partition in range(10)
        }
        for number in range(1_000)
    }
    journal = replace(JOURNAL, groups=groups)
    texts = journal_texts(journal)
    assert max(len(text.encode()) for text in texts.values()) < CHUNK_BYTES + 50_000 < 700_000
    assert parse_journal(texts, "team", "a->east") == journal


def test_what_a_group_had_before_its_first_change_stays() -> None:
    again = JOURNAL.with_groups({"billing": {PARTITION: OffsetChange(44, 46)}, "late": {PARTITION: OffsetChange(1, 2)}})
    assert again.groups["billing"][PARTITION] == OffsetChange(None, 46)
    assert again.groups["late"][PARTITION] == OffsetChange(1, 2)
