"""Random trees for tests: clusters, Connect clusters and flows with most of what a flow can say, that load and expand."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from mm2mgr.connectors import Connector
from mm2mgr.errors import SpecError
from mm2mgr.expand import expand
from mm2mgr.formats.connectors import FoundConnector
from mm2mgr.formats.properties import Entry
from mm2mgr.formats.recognise import ForeignFile
from mm2mgr.render import render
from mm2mgr.spec.files import spec_of, yaml_text
from mm2mgr.spec.places import read_yaml

ALIASES = ("dc1", "dc2", "agg", "eu.west", "b-1")
_PATTERNS = ("app.orders", "logs[.].*", ".*", "payments", "a|b", "x-[0-9]+", "(?:app.orders)")
_DURATIONS = ("1s", "30s", "10min", "600s", "60s")


def block(**values: object) -> st.SearchStrategy[dict[str, object]]:
    """Return some of these keys, each with one of its values."""
    return st.fixed_dictionaries({}, optional=dict(values))  # type: ignore[arg-type]


def client(*keys: str) -> st.SearchStrategy[dict[str, object]]:
    return st.dictionaries(st.sampled_from(keys), st.sampled_from([None, 100, "5000", -1]), max_size=3)


_CONSUMER = client("max.poll.records", "fetch.max.bytes", "receive.buffer.bytes", "client.rack")
_PRODUCER = client("linger.ms", "batch.size", "send.buffer.bytes", "compression.type")
_ADMIN = client("retry.backoff.ms", "request.timeout.ms")
_LISTS = st.lists(st.sampled_from(_PATTERNS), min_size=1, max_size=3, unique=True)
SETTINGS = block(
    topics=block(exclude=_LISTS, include=_LISTS),
    tasks=block(max=st.integers(1, 20)),
    sync=block(topic_configs=st.booleans(), topic_acls=st.booleans(), exclude_properties=st.just(["retention.ms"])),
    source_consumer=_CONSUMER,
    record_producer=_PRODUCER,
    offset_syncs_producer=client("max.block.ms", "linger.ms"),
    source_connector=block(
        **{"offset.lag.max": st.just(5), "transforms": st.just("f"), "transforms.f.type": st.just("org.x.F")}
    ),
    state=st.sampled_from(["paused", "stopped", "running"]),
    silence=st.just({"pattern-dot": "on purpose"}),
    verbatim=block(source=block(**{"errors.tolerance": st.just("all"), "key.converter": st.none()})),
)
SHARED = block(
    checkpoints=st.booleans()
    | block(
        group_offsets=st.booleans(),
        interval=st.sampled_from(_DURATIONS),
        groups=block(include=_LISTS, exclude=_LISTS),
    ),
    heartbeats=st.booleans() | block(interval=st.sampled_from(_DURATIONS)),
    offset_syncs=st.booleans() | block(location=st.sampled_from(["source", "target"])),
    replication_policy=st.sampled_from(["default", "identity", "org.x.Policy"]),
    separator=st.sampled_from([".", "_"]),
    refresh_interval=st.sampled_from(_DURATIONS),
    target_consumer=_CONSUMER,
    source_admin=_ADMIN,
    target_admin=_ADMIN,
    checkpoint_connector=block(**{"errors.retry.timeout": st.just(7)}),
    heartbeat_connector=block(**{"errors.retry.timeout": st.just(9)}),
)
_SECURITY = st.sampled_from(
    [
        {},
        {"protocol": "SSL", "ssl.truststore.location": "/t.jks"},
        {"protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "${file:/etc/x:jaas}"},
    ]
)


@st.composite
def trees(draw: st.DrawFn) -> dict[str, object]:
    """Draw the values of a tree. Settings that flows of a pair must share are in the defaults."""
    aliases = draw(st.lists(st.sampled_from(ALIASES), min_size=2, max_size=4, unique=True))
    clusters = {
        alias: {
            "bootstrap_servers": [f"{alias.replace('.', '-')}-k{number}:9092" for number in (1, 2)],
            "security": draw(_SECURITY),
            "replication_factor": draw(st.integers(1, 4)),
        }
        for alias in aliases
    }
    connects = {
        f"c-{number}": {
            "url": f"http://c{number}:8083",
            "kafka": draw(st.sampled_from(aliases)),
            **draw(block(producer_security=st.sampled_from(["worker", "connector"]), exactly_once=st.just(True))),
        }
        for number in range(draw(st.integers(1, 2)))
    }
    by_target = {alias: draw(st.sampled_from(sorted(connects))) for alias in aliases}
    flows: dict[str, object] = {}
    for name in draw(st.lists(st.sampled_from(["orders", "logs", "a.b"]), min_size=1, max_size=3, unique=True)):
        sources = draw(st.lists(st.sampled_from(aliases), min_size=1, unique=True))
        targets = draw(st.lists(st.sampled_from(aliases), min_size=1, unique=True))
        pairs = [f"{source}->{target}" for source in sources for target in targets]
        loops = [f"{alias}->{alias}" for alias in sources if alias in targets]
        rest = [pair for pair in pairs if pair not in loops]
        own = draw(SETTINGS)
        topics = own.pop("topics", {})
        flows[name] = {
            "sources": sources,
            "targets": targets,
            "except": [
                *loops,
                *draw(st.lists(st.sampled_from(rest), unique=True, max_size=2) if rest else st.just([])),
            ],
            "run_on": by_target,
            **own,
            "topics": {"include": draw(_LISTS), **topics},  # type: ignore[dict-item]
            "pairs": draw(st.dictionaries(st.sampled_from(rest), SETTINGS, max_size=2)) if rest else {},
        }
    defaults = {**draw(SETTINGS), **draw(SHARED)}
    if draw(st.booleans()):
        defaults["delivery"] = "exactly_once"
    return {
        "owner": "team",
        "clusters": clusters,
        "connect": connects,
        "defaults": {"flows": defaults},
        "flows": flows,
    }


def rendered(values: dict[str, object]) -> tuple[Connector, ...] | None:
    """Return the connectors of a tree, None for one that is refused."""
    try:
        return render(expand(spec_of(read_yaml(Path("tree.yaml"), yaml_text(values).encode()), ("tree.yaml",))))
    except SpecError:
        return None


def as_files(connectors: tuple[Connector, ...]) -> list[ForeignFile]:
    """Return connectors as a dump of each of their Connect clusters."""
    files = []
    for connect in sorted({connector.connect for connector in connectors}):
        dumped = tuple(
            FoundConnector(
                connector.name,
                connector.config["connector.class"],
                connector.config,
                {key: Entry(key, value, f'"{value}"', line, (key,)) for line, (key, value) in numbered(connector)},
                entries=tuple(
                    Entry(key, value, f'"{value}"', line, (connector.name, key))
                    for line, (key, value) in numbered(connector)
                ),
                state=connector.state,
                owner=connect,
            )
            for connector in connectors
            if connector.connect == connect
        )
        files.append(ForeignFile(f"{connect}.json", "json", "", dumped))
    return files


def numbered(connector: Connector) -> list[tuple[int, tuple[str, str]]]:
    start = 1000 * (sum(map(ord, connector.name)) % 997)
    return list(enumerate(connector.config.items(), start))
