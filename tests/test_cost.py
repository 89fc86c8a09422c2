"""What flows cost: which bytes cross which link, what they are known from, prices by direction, and money without noise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pytest

from mm2mgr.cost import WIRE_FACTOR, Measured, MonthOfFlows, cost_lines, cost_of, legs, log_bytes, money_text
from mm2mgr.operations.workspace import Workspace

_TREE = """\
owner: team
clusters:
  a: {{bootstrap_servers: ["a:9092"]}}
  b: {{bootstrap_servers: ["b:9092"], price_per_gb_in: 0.05, currency: EUR}}
  c: {{bootstrap_servers: ["c:9092"]}}
connect:
  w: {{url: "http://w:8083", kafka: {near}}}
links:
{links}
flows:
  orders: {{sources: [a], targets: [b], topics: {{include: {topics}}}, run_on: {{b: w}}{more}}}
"""
_LINK = "  - {between: [b, a], rtt: 1ms, price_per_gb: {a->b: 0.02, b->a: 0.09}, currency: EUR}"


@dataclass(frozen=True)
class Hours:
    """A topic with the same records, or bytes of brokers' metrics, in each of some hours."""

    records: list[float]
    broker_bytes: list[float]
    covered_hours: list[float]
    partitions: list[float]
    record_bytes: float | None = 100.0
    records_per_byte: float | None = None
    first_hour: int = 0


def topic(records: float = 0.0, sent: float = 0.0, hours: int = 10, **more: float | None) -> Hours:
    columns = ([value] * hours for value in (records, sent, 1.0, 1.0))
    return Hours(*columns, **more)  # type: ignore[arg-type]


@dataclass
class Estate:
    folder: Path
    topics: Mapping[str, Hours]
    stored: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def cost(self, near: str = "b", links: str = _LINK, topics: str = "[orders]", more: str = "") -> MonthOfFlows:
        self.folder.mkdir(exist_ok=True)
        text = _TREE.format(near=near, links=links, topics=topics, more=more)
        (self.folder / "tree.yaml").write_text(text)
        self.workspace = Workspace((self.folder,))
        by_name = {("a", name): hours for name, hours in self.topics.items()}
        measured = Measured("1970-01", range(10), 9, by_name, self.stored)
        return cost_of(self.workspace.topology.flows, self.workspace.spec.tree.links, measured)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "clusters"


def sums(result: MonthOfFlows) -> dict[str, tuple[int, list[str]]]:
    return {each.place: (each.volume.measured_bytes, list(each.volume.by_basis)) for each in result.charges}


def test_workers_beside_the_target_fetch_what_is_stored_and_write_what_their_producer_makes(folder: Path) -> None:
    stored = {("a", "orders"): 40.0, ("b", "a.orders"): 115.0}
    result = Estate(folder, {"orders": topic(1000)}, stored).cost()
    assert sums(result) == {"a->b": (400_000, ["stored"]), "b": (1_150_000, ["stored"])}
    link, into = result.charges
    assert (link.price_per_gb, link.wire_factor) == (Decimal("0.02"), WIRE_FACTOR)
    assert (into.price_per_gb, into.wire_factor) == (Decimal("0.05"), 1)


def test_workers_beside_the_source_send_what_the_target_gets(folder: Path) -> None:
    stored = {("a", "orders"): 40.0, ("b", "a.orders"): 115.0}
    result = Estate(folder, {"orders": topic(1000)}, stored).cost(near="a")
    assert sums(result)["a->b"] == (1_150_000, ["stored"])


def test_workers_elsewhere_cross_two_links(folder: Path) -> None:
    stored = {("a", "orders"): 40.0, ("b", "a.orders"): 115.0}
    links = "  - {between: [a, c], rtt: 1ms, price_per_gb: 1, currency: USD}"
    estate = Estate(folder, {"orders": topic(1000)}, stored)
    result = estate.cost(near="c", links=links)
    assert sums(result) == {
        "a->c": (400_000, ["stored"]),
        "c->b": (1_150_000, ["stored"]),
        "b": (1_150_000, ["stored"]),
    }
    (line,) = cost_lines(result.charges, "owner", "team")
    assert [amount.currency for amount in line.amounts] == ["EUR", "USD"], "two currencies are never added"
    assert line.unpriced == ("c->b",)
    (flow,) = estate.workspace.topology.flows
    assert [place for place, _, _ in legs(flow, [])] == ["a->b"], "as beside the target where no link is declared"


def test_what_is_not_measured_in_a_log_is_counted_before_compression_and_says_so(folder: Path) -> None:
    result = Estate(folder, {"orders": topic(1000)}).cost()
    plain = round(10_000 * log_bytes(100.0))
    assert sums(result) == {"a->b": (plain, ["uncompressed"]), "b": (plain, ["uncompressed"])}


def test_a_producer_that_compresses_writes_no_more_than_the_source_has(folder: Path) -> None:
    estate = Estate(folder, {"orders": topic(1000)}, {("a", "orders"): 40.0})
    plain = round(10_000 * log_bytes(100.0))
    assert sums(estate.cost())["b"] == (plain, ["uncompressed"])
    compressing = estate.cost(more=", record_producer: {compression.type: zstd}")
    assert sums(compressing)["b"] == (400_000, ["source"])


def test_brokers_metrics_are_bytes_as_sent(folder: Path) -> None:
    estate = Estate(folder, {"orders": topic(sent=500.0, record_bytes=None)})
    assert sums(estate.cost()) == {"a->b": (5000, ["brokers"]), "b": (5000, ["source"])}
    counted = Estate(
        folder, {"orders": topic(sent=500.0, record_bytes=None, records_per_byte=0.1)}, {("b", "a.orders"): 20.0}
    )
    assert sums(counted.cost())["b"] == (10_000, ["stored"]), "50 records an hour of 20 bytes"


def test_what_was_not_measured_is_named_and_no_sum_has_it(folder: Path) -> None:
    estate = Estate(folder, {"orders": topic(1000), "sizeless": topic(1000, record_bytes=None)})
    result = estate.cost(topics='[orders, sizeless, gone, "x.*"]')
    assert sums(result)["a->b"] == sums(Estate(folder, {"orders": topic(1000)}).cost())["a->b"]
    assert [(missing.flow, missing.topic) for missing in result.unmeasured] == [
        ("orders:a->b", "sizeless"),
        ("orders:a->b", "gone"),
    ]
    nothing = Estate(folder, {}).cost(topics='["x.*"]')
    assert nothing.charges == ()
    assert [missing.topic for missing in nothing.unmeasured] == [""]


def test_a_price_of_one_direction_is_not_that_of_the_other(folder: Path) -> None:
    estate = Estate(folder, {"orders": topic(1000)})
    other_way = "  - {between: [a, b], rtt: 1ms, price_per_gb: {b->a: 0.09}, currency: EUR}"
    assert estate.cost(links=other_way).charges[0].price_per_gb is None
    both = "  - {between: [a, b], rtt: 1ms, price_per_gb: '0.10', currency: EUR}"
    assert estate.cost(links=both).charges[0].price_per_gb == Decimal("0.10")


def test_money_is_exact_and_prints_without_noise(folder: Path) -> None:
    stored = {("a", "orders"): 1e6, ("b", "a.orders"): 1e6}
    result = Estate(folder, {"orders": topic(1000)}, stored).cost()
    (line,) = cost_lines(result.charges, "flow", "team")
    (amount,) = line.amounts
    assert amount.so_far == 10 * WIRE_FACTOR * Decimal("0.02") + 10 * Decimal("0.05")
    assert amount.so_far_text == "0.71"
    texts = {"0": "0.00", "0.005": "0.005", "0.02": "0.02", "12.345": "12.35", "0.0000001": "0.00", "1E+3": "1000.00"}
    assert {text: money_text(Decimal(text)) for text in texts} == texts


def test_lines_of_links_and_clusters_have_only_their_own(folder: Path) -> None:
    result = Estate(folder, {"orders": topic(1000)}, {("a", "orders"): 40.0, ("b", "a.orders"): 115.0}).cost()
    (link,), (cluster,) = (cost_lines(result.charges, by, "team") for by in ("link", "cluster"))
    assert (link.name, link.link_bytes, link.into_bytes) == ("a->b", 417_200, 0)
    assert (cluster.name, cluster.link_bytes, cluster.into_bytes) == ("b", 0, 1_150_000)
    assert json.dumps(link.covered_share) == "1.0"
