"""What must hold for every connector of every estate: the example one, and random ones."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mm2mgr.connectors import Connector
from mm2mgr.expand import expand
from mm2mgr.render import FLOW_KEY, OWNER_KEY, render
from mm2mgr.spec.files import load
from mm2mgr.spec.scalars import OWNED_CONNECTOR_KEYS
from mm2mgr.topology import Topology
from tests.spec.trees import ESTATE, expanded

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
PREFIXED = re.compile(r"(source|target)\.(cluster\.(?!alias)|consumer\.|producer\.|admin\.)|producer\.override\.")
LOCATION = "offset-syncs.topic.location"
SHARED_BY_A_PAIR = ("replication.policy.class", "replication.policy.separator")


def check(topology: Topology) -> None:
    connectors = render(topology)
    for connector in connectors:
        check_one(connector, topology)
    for pair in {flow.pair for flow in topology.flows}:
        check_pair([one for one in connectors if one.pair == pair], topology)
    assert len({(one.connect, one.name) for one in connectors}) == len(connectors)
    served = Counter(flow for one in connectors if one.type == "source" for flow in one.flows)
    assert served == Counter(flow.id for flow in topology.flows)  # each flow has one source connector


def check_one(connector: Connector, topology: Topology) -> None:
    config = connector.config
    assert {config[f"{part}.converter"] for part in ("key", "value", "header")} == {BYTES}
    assert config["errors.tolerance"] == "none"
    assert config["name"] == connector.name
    assert config[OWNER_KEY] == topology.owner
    assert [config[FLOW_KEY]] == (list(connector.flows) if connector.type == "source" else [connector.pair])
    assert config.keys() == connector.origins.keys()
    assert json.loads(json.dumps(dict(config))) == config
    assert all(isinstance(value, str) for value in config.values())
    assert all(origin.where for origin in connector.origins.values())
    if connector.type == "source":
        assert config["sync.topic.acls.enabled"] in {
            "true",
            "false",
        }  # Kafka's own default would ask for cluster rights
        check_offset_syncs(config)
        assert ("offset-syncs.topic.location" in config) == (config["emit.offset-syncs.enabled"] == "true")


def check_offset_syncs(config: Mapping[str, str]) -> None:
    """Whoever writes offset syncs must not hold up the worker's other flows, on whichever side; the rest has no such client."""
    places = {side for side in ("source", "target") if f"{side}.producer.max.block.ms" in config}
    assert places == {config[LOCATION]} if config["emit.offset-syncs.enabled"] == "true" else not places


def check_pair(connectors: list[Connector], topology: Topology) -> None:
    source, target = connectors[0].pair.split("->")
    kinds = Counter(one.type for one in connectors)
    flows = topology.select(f"{source}->{target}")
    beats = any(flow.settings.heartbeats.enabled for flow in flows)
    checked = any(flow.settings.checkpoints.enabled and flow.settings.offset_syncs.enabled for flow in flows)
    assert (kinds["heartbeat"], kinds["checkpoint"], kinds["source"]) == (int(beats), int(checked), len(flows))
    assert len({one.connect for one in connectors}) == 1
    for key in SHARED_BY_A_PAIR:
        assert len({one.config[key] for one in connectors}) == 1
    places = {one.config.get(LOCATION) for one in connectors if one.type != "heartbeat"}
    assert len(places) == 1
    carriers = [one for one in connectors if one.config.get("heartbeats.replication.enabled") == "true"]
    assert len(carriers) == int(beats)
    for one in connectors:
        aliases = (one.config["source.cluster.alias"], one.config["target.cluster.alias"])
        assert aliases == ((target, source) if one.type == "heartbeat" else (source, target))
        if one.type == "heartbeat":
            assert (
                one.config["target.cluster.bootstrap.servers"] == topology.clusters[source].client["bootstrap.servers"]
            )


def test_what_a_template_writes_cannot_be_written_in_the_declaration_either() -> None:
    ours = {key for one in render(expand(load([ESTATE]))) for key in one.config if not PREFIXED.match(key)}
    assert {key for key in ours if not key.startswith("mm2mgr.")} <= OWNED_CONNECTOR_KEYS.keys()


def test_the_example_estate() -> None:
    check(expand(load([ESTATE])))


@pytest.mark.parametrize(
    "case", sorted(Path(__file__).parent.glob("golden/*/in.yaml")), ids=lambda path: path.parent.name
)
def test_the_golden_cases(case: Path) -> None:
    check(expand(load([case])))


ALIASES = ["a", "b", "c", "d"]
FLOWS = st.lists(
    st.tuples(
        st.sets(st.sampled_from(ALIASES), min_size=1),
        st.sets(st.sampled_from(ALIASES), min_size=1),
        st.booleans(),  # heartbeats
        st.booleans(),  # checkpoints
    ),
    min_size=1,
    max_size=4,
)


def tree(flows: list[tuple[set[str], set[str], bool, bool]], syncs: object, runs_on: str) -> str:
    lines = ["owner: team", "clusters:", *(f"  {alias}: {{bootstrap_servers: ['{alias}:9092']}}" for alias in ALIASES)]
    lines += ["connect:", *(f"  on-{alias}: {{url: 'http://{alias}', kafka: {alias}}}" for alias in ALIASES), "flows:"]
    for number, (sources, targets, heartbeats, checkpoints) in enumerate(flows):
        ends = f"sources: {sorted(sources)}, targets: {sorted(targets)}, except: {[f'{x}->{x}' for x in sources & targets]}"
        more = f"heartbeats: {heartbeats}, checkpoints: {checkpoints}, offset_syncs: {syncs}, run_on: {runs_on}"
        lines.append(f"  f{number}: {{{ends}, {more}, topics: {{include: [t{number}]}}}}")
    return "\n".join(lines)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(FLOWS, st.sampled_from(["true", "false", "{location: target}"]), st.sampled_from(["null", "on-a", "on-d"]))
def test_random_estates(
    tmp_path: Path, flows: list[tuple[set[str], set[str], bool, bool]], syncs: str, runs_on: str
) -> None:
    check(expanded(tmp_path, x=tree(flows, syncs, runs_on)))
