"""Rules about patterns that match less than they say."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.lint.subject import KafkaFacts
from mm2mgr.topics.names import NameFilter, matches_no_topic, readable
from tests.examples import draw_examples
from tests.lint import made

NAMES = ["".join(letters) for length in (1, 2, 3) for letters in product("ab-._A1", repeat=length)]


@draw_examples(300)
@given(st.text(alphabet='ab.*+?[]()|^$\\"/ 1{2}!', min_size=1, max_size=9))
def test_no_name_matches_what_is_said_to_match_none(item: str) -> None:
    if matches_no_topic(item) and readable(item):
        taken = NameFilter((item,), ())
        assert not any(map(taken.takes, NAMES)), item


@pytest.mark.parametrize(
    ("topics", "reason", "fix"),
    [
        ('"orders.*"', "quotes", "topics=orders.*"),
        ("\u201corders\u201d", "quotes", "topics=orders"),
        ("orders;payments", "a semicolon", "topics=orders,payments"),
        ("orders\npayments", "a blank", "topics=orders,payments"),
        ("orders .*", "a blank", "kafka-topics.sh"),
        ("orders/.*", "a slash", "kafka-topics.sh"),
        ("!tmp", "an exclamation mark", "topics.exclude=tmp"),
        ("[orders]", "one set of characters", "topics=orders"),
        ("a$b", "the whole name", "kafka-topics.sh"),
        ("x{250}", "the whole name", "kafka-topics.sh"),
        ("bestellungen-\u00fc", "'\u00fc'", "kafka-topics.sh"),
        ("^(?!test)", "the whole name", ".* behind"),
    ],
)
def test_the_reason_and_what_to_write(topics: str, reason: str, fix: str) -> None:
    [hit] = made.hits("pattern-matches-nothing", made.source({"topics": topics}))
    assert reason in hit.message
    assert "RUNNING" in hit.message
    assert fix in hit.fix
    assert hit.severity is None


def test_everything_is_never_taken_by_machine() -> None:
    [hit] = made.hits("pattern-matches-nothing", made.source({"topics": '".*"'}))
    assert hit.fix == "write topics=.*"
    assert not hit.edits
    [hit] = made.hits("pattern-matches-nothing", made.source({"topics.exclude": '"tmp.*"'}))
    assert hit.severity == "warning"
    assert not hit.edits


@pytest.mark.parametrize("topics", ["(orders,payments)", "orders-[0-9]{1,3}", "${file:/p:topics}", "^$", "[a-z]", "a|"])
def test_what_matches_a_name_or_is_not_known(topics: str) -> None:
    assert not made.hits("pattern-matches-nothing", made.source({"topics": topics}))


def test_an_anchor_counts_where_a_longer_name_is_left_out() -> None:
    def said(topics: str, *there: str) -> int:
        known = KafkaFacts(partitions=dict.fromkeys(there, 1))
        return len(made.hits("pattern-exact", made.source({"topics": topics}, source_kafka=known)))

    assert said("^billing", "billing", "billing.eu") == 1
    assert said("^billing", "billing", "orders") == 0
    assert said("^billing,billing.*", "billing", "billing.eu") == 0
    assert said("billing$", "eu.billing") == 1
