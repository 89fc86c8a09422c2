"""The example estate in clusters/ is what newcomers read first: it expands to what its comments promise."""

from __future__ import annotations

from collections import Counter

import pytest

from mm2mgr.expand import expand
from mm2mgr.spec.files import load
from mm2mgr.topology import Topology
from tests.spec.trees import ESTATE


@pytest.fixture(scope="module")
def estate() -> Topology:
    return expand(load([ESTATE]))


def test_three_workloads_from_three_data_centres_to_two_aggregates(estate: Topology) -> None:
    assert Counter(flow.name for flow in estate.flows) == {"metrics": 6, "clickstream": 6, "logging": 5}
    assert {flow.target.alias for flow in estate.flows} == {"agg-east", "agg-west"}
    assert "logging:dc3-logging->agg-west" not in {flow.id for flow in estate.flows}


def test_one_pair_runs_where_neither_side_lives(estate: Topology) -> None:
    foreign = [flow.id for flow in estate.flows if flow.connect.kafka != flow.target.alias]
    assert foreign == ["clickstream:dc3-clickstream->agg-west"]


def test_task_numbers_come_from_people_sizing_and_defaults(estate: Topology) -> None:
    tasks = {flow.id: (flow.tasks.maximum, flow.tasks.maximum.origin.kind) for flow in estate.flows}
    assert tasks["logging:dc1-logging->agg-east"] == ("6", "override")
    assert tasks["logging:dc3-logging->agg-east"] == ("2", "spec")
    assert tasks["clickstream:dc1-clickstream->agg-east"] == ("4", "spec")
    assert tasks["metrics:dc3-metrics->agg-west"] == ("1", "default")


def test_settings_of_one_pair(estate: Topology) -> None:
    special, usual = estate.select("dc1-logging->agg-west") + estate.select("dc2-logging->agg-west")
    assert special.client("record_producer")["batch.size"] == "524288"
    assert usual.client("record_producer")["batch.size"] == "262144"
    assert special.client("record_producer")["compression.type"] == "zstd"
    assert special.settings.refresh_interval == 1200


def test_every_secret_is_a_placeholder_and_every_host_an_example(estate: Topology) -> None:
    for cluster in estate.clusters.values():
        servers = cluster.model.bootstrap_servers
        assert all(address.rsplit(":", 1)[0].endswith(".example.net") for address in servers)
        if jaas := cluster.client.get("sasl.jaas.config"):
            assert jaas.startswith("${file:/etc/connect/secrets.properties:jaas.dc")
            assert jaas.endswith(f"{cluster.model.labels['dc']}}}")
