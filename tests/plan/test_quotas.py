"""What must never happen to client quotas, over random trees, brokers and connectors that run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.kafka.quotas import ProducerQuotas, QuotaEntity
from mm2mgr.plan.quotas import UsedClientIds, WantedQuota, client_id_of, quota_changes
from mm2mgr.render import CLIENT_ID_KEY, quota_mark

OWNERS = ("team", "team.b", "t")
NAMES = ("f:a->b", "g:a->b", "a->b", "b/f:a->b")
KAFKAS = ("b", "c")
CLIENT_IDS = st.one_of(
    st.builds(lambda owner, name: quota_mark(owner) + name, st.sampled_from(OWNERS), st.sampled_from(NAMES)),
    st.sampled_from(["", "web", "mm2mgr.team", "mm2mgr.team.x", "mm2mgr", "<default>"]),
)
OURS = st.builds(lambda name: quota_mark("team") + name, st.sampled_from(NAMES))
ENTITIES = st.builds(QuotaEntity, CLIENT_IDS, st.sampled_from(["", "anna", "<default>"]))
USED = st.frozensets(st.tuples(st.sampled_from(KAFKAS), OURS), max_size=4)
READ = st.dictionaries(
    st.sampled_from(KAFKAS),
    st.one_of(
        st.just("it is away"),
        st.builds(ProducerQuotas, st.integers(1, 9), st.dictionaries(ENTITIES, st.floats(1, 1e9), max_size=6)),
    ),
)
WANTED = st.lists(
    st.builds(
        WantedQuota,
        st.sampled_from(KAFKAS),
        st.builds(QuotaEntity, OURS, st.sampled_from(["", "anna"])),
        st.floats(1, 1e10),
        st.just(("f:a->b",)),
    ),
    max_size=4,
    unique_by=lambda each: (each.kafka, each.entity),
)


@given(WANTED, READ, USED, st.none() | USED, st.booleans())
def test_only_quotas_of_this_owner_that_nobody_uses_are_deleted_and_what_was_not_read_is_not_written(
    wanted: list[WantedQuota],
    read: dict[str, ProducerQuotas | str],
    concerned: frozenset[tuple[str, str]],
    kept: frozenset[tuple[str, str]] | None,
    whole: bool,
) -> None:
    used = UsedClientIds(concerned, kept, whole)
    changes = quota_changes("team", wanted, read, used)
    named = [(change.kafka, change.entity) for change in changes]
    assert len(named) == len(set(named)), "one change for each quota"
    by_entity = {(each.kafka, each.entity): each for each in wanted}
    for change in changes:
        answer = read[change.kafka]
        assert change.entity.client_id.startswith("mm2mgr.team/")
        assert change.is_write is (change.action in {"create", "update", "delete"})
        if isinstance(answer, str):
            assert change.action == "blocked"
            continue
        before = answer.rates.get(change.entity)
        assert change.before == before
        if change.action == "delete":
            assert before is not None
            assert (change.kafka, change.entity) not in by_entity
            assert kept is not None
            assert (change.kafka, change.entity.client_id) not in kept
        else:
            limit = by_entity[change.kafka, change.entity].bytes_per_second
            assert change.after is not None
            assert change.after >= 1
            assert change.after * answer.brokers <= max(limit, answer.brokers)
            assert change.action == ("create" if before is None else "no-op" if before == change.after else "update")
    for each in wanted:
        assert each.kafka not in read or (each.kafka, each.entity) in named, "nothing wanted is forgotten"


@given(WANTED, READ)
def test_what_was_written_is_wanted_no_more(wanted: list[WantedQuota], read: dict[str, ProducerQuotas | str]) -> None:
    """A second plan is empty."""
    changes = quota_changes("team", wanted, read, UsedClientIds())
    after: dict[str, ProducerQuotas | str] = {}
    for kafka, answer in read.items():
        rates = dict(answer.rates) if isinstance(answer, ProducerQuotas) else {}
        for change in changes:
            if change.kafka == kafka and change.is_write:
                rates.pop(change.entity, None)
                if change.after is not None:
                    rates[change.entity] = float(change.after)
        after[kafka] = answer if isinstance(answer, str) else ProducerQuotas(answer.brokers, rates)
    assert not [each for each in quota_changes("team", wanted, after, UsedClientIds()) if each.is_write]


@given(st.sampled_from(OWNERS), CLIENT_IDS)
def test_a_client_id_is_of_one_owner_at_most(owner: str, client_id: str) -> None:
    config = {CLIENT_ID_KEY: client_id, "target.cluster.alias": "b"}
    owners = [each for each in OWNERS if client_id_of(each, config)]
    assert len(owners) <= 1
    assert (client_id_of(owner, config) == ("b", client_id)) is (owner in owners)
