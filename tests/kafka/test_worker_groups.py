"""Members of groups of Connect workers, by what they join with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.kafka.worker_groups import WorkerGroup, read_worker_groups, worker_of
from tests.clock import jumping

# What workers of 3.6.2 and 4.3.1 joined with, cut: protocol `sessioned`, version 2.
JOINED = (
    b"\x00\x02\x00\x17http://127.0.0.1:27758/\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00q\x00\x02\x00\x00\x00.connect"
)


@pytest.mark.parametrize(
    ("metadata", "worker"),
    [
        (JOINED, "127.0.0.1:27758"),
        (b"\x00\x00\x00\x13https://w1.dc1:8443" + b"\x00" * 8, "w1.dc1:8443"),  # eager
        (b"\x00\x01\x00\x12http://[::1]:8083/" + b"\x00" * 8, "[::1]:8083"),
        (b"", ""),  # while the group rebalances
        (b"\x00\x01\x00\x00\x00\x00\x00\x01", ""),  # a consumer without topics
        (b"\x00\x02\xff\xff", ""),
        (b"\x00\x02\x00\x17http://", ""),
        (b"\x00\x02\x00\x0ahttp://w1/", ""),
        (b"\x00\x02\x00\x15http://me:secret@w1:1", ""),
        (b"\x00\x02\x00\x0chttp://\x1bw1:1", ""),
    ],
)
def test_a_member_tells_where_its_rest_api_is(metadata: bytes, worker: str) -> None:
    assert worker_of(metadata) == worker


@given(st.binary(max_size=60))
def test_whatever_a_member_sends_is_read_or_passed_over(metadata: bytes) -> None:
    worker_of(metadata)
    worker_of(JOINED[:4] + metadata)


@dataclass
class Member:
    metadata: bytes


@dataclass
class Group:
    id: str
    members: list[Member]
    protocol_type: str = "connect"


@dataclass
class Listing:
    """A cluster that lists these groups, one list after the other; the last one stays."""

    lists: list[list[Group]]
    left: float = 10.0
    asked: list[float] = field(default_factory=list)

    @property
    def admin(self) -> Any:
        return self

    def identity(self, **_: Any) -> None:
        return None

    @contextmanager
    def doing(self, _: str) -> Iterator[None]:
        yield

    def seconds_left(self) -> float:
        self.left -= 0.2
        return self.left

    def list_groups(self, timeout: float) -> list[Group]:
        self.asked.append(timeout)
        return self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]


def test_a_group_that_rebalances_is_asked_again_while_there_is_time() -> None:
    rebalancing = [Group("east", [Member(b"")]), Group("readers", [Member(JOINED)], "consumer"), Group("gone", [])]
    settled = [Group("east", [Member(JOINED), Member(JOINED.replace(b"27758", b"27759"))])]
    with jumping():
        listing: Any = Listing([rebalancing, rebalancing, settled])
        expected = (WorkerGroup("east", ("127.0.0.1:27758", "127.0.0.1:27759")),)
        assert read_worker_groups(listing) == expected
        assert len(listing.asked) == 3
        listing = Listing([rebalancing])
        assert read_worker_groups(listing) == (WorkerGroup("east", (), 1),)
        assert 3 < len(listing.asked) < 60


def test_members_that_advertise_the_same_address_are_not_taken_for_one_worker() -> None:
    with jumping():
        listing: Any = Listing([[Group("east", [Member(JOINED), Member(JOINED)])]])
        assert read_worker_groups(listing) == (WorkerGroup("east", ("127.0.0.1:27758",), 1),)
    assert len(listing.asked) == 1


def test_a_dedicated_mirrormaker_beside_the_workers_does_not_hold_up() -> None:
    """Its nodes are members of such a group, too, and tell no address: without REST they advertise `NOTUSED`."""
    node = Member(b"\x00\x01\x00\x07NOTUSED" + b"\x00" * 8)
    with jumping():
        listing: Any = Listing([[Group("a-mm2", [node, node]), Group("east", [Member(JOINED)])]])
        assert read_worker_groups(listing) == (
            WorkerGroup("a-mm2", (), 2),
            WorkerGroup("east", ("127.0.0.1:27758",)),
        )
    assert len(listing.asked) == 1
