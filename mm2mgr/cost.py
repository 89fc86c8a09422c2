"""What flows cost: bytes over each link and into each cluster, with the prices that the tree declares.

Pure: what was written to the topics hour by hour, what their records take in logs, flows and links go in. All formulas
of bytes are here. GB are 10^9 bytes, money is decimal, and what was not measured is named and never counted as nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Literal, Protocol

from mm2mgr.spec.scalars import java_pattern
from mm2mgr.text import few
from mm2mgr.topics.names import literal
from mm2mgr.weeks import FilledHours, fill_hours

if TYPE_CHECKING:
    from mm2mgr.spec.models import Link
    from mm2mgr.topology import Flow

GB = 1_000_000_000
WIRE_FACTOR = Decimal("1.043")
"""Bytes on the wire, both ways and with IP and TCP headers, for each byte of Kafka's log that a mirror moves over it.

Measured by `benchmarks/wire_overhead.py`: Kafka 4.3.1, packets of 1500 bytes, ten mirrors of 16 to 33 MB (records of
100 B, 1 KB and 10 KB, plain, lz4 and zstd, fetched or produced over the link, mm2mgr's settings and Kafka's): 1.040 to
1.051, mean 1.043. Of it 1.036 are headers of full packets (1500 / 1448), 0.003 to 0.012 acknowledgements and requests.
Not in it: TLS (22 bytes for up to 16 KiB), and what an idle mirror sends, about 1 kB/s.
"""

RECORD_OVERHEAD_BYTES = 10
"""Of a record in a log besides key, value and headers: lengths, attributes, deltas of time and offset."""
BATCH_BYTES, BATCH_HEADER_BYTES = 16_384, 61
"""Kafka's default batch.size, and what each batch takes."""

Basis = Literal["stored", "brokers", "uncompressed", "source"]
BASES: Mapping[Basis, str] = {
    "stored": "as stored, compression included (records counted by offsets, their size measured in the log)",
    "brokers": "brokers' own metrics, compressed as sent",
    "uncompressed": "records before compression, with the log's overhead: at most that, where they are compressed",
    "source": "taken to be as on the source: the target's log was not measured",
}
"""What a number of bytes comes from, best first: of the first two it is known how much compression leaves."""
By = Literal["flow", "owner", "link", "cluster", "month"]
Side = Literal["source", "target"]


def log_bytes(record_bytes: float) -> float:
    """Return what an uncompressed record of this size takes in a log, with its share of the header of a full batch."""
    whole = record_bytes + RECORD_OVERHEAD_BYTES
    return whole + BATCH_HEADER_BYTES / max(1.0, BATCH_BYTES // whole)


class WrittenTopic(Protocol):
    """What was written to a topic of a source, hour by hour: `TopicHours` of the roll-ups."""

    @property
    def first_hour(self) -> int: ...
    @property
    def records(self) -> Iterable[float]: ...
    @property
    def broker_bytes(self) -> Iterable[float]: ...
    @property
    def covered_hours(self) -> Iterable[float]: ...
    @property
    def partitions(self) -> Iterable[float]: ...
    @property
    def record_bytes(self) -> float | None: ...
    @property
    def records_per_byte(self) -> float | None: ...


@dataclass(frozen=True)
class Measured:
    """What the store has of a month: `topics` by cluster and name, and by the same what a record `stored` takes in the
    log. `now_hour`: the last hour that counts, since 1970."""

    month: str
    hours: range
    now_hour: int
    topics: Mapping[tuple[str, str], WrittenTopic]
    stored: Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class MovedBytes:
    """Bytes of a month: those measured, and of the whole month. `covered`: the share of its time that was measured.
    `by_basis`: the measured ones by what they come from."""

    measured_bytes: int
    month_bytes: int
    covered: float
    by_basis: Mapping[Basis, int]


@dataclass(frozen=True)
class Charge:
    """What one flow moves in a month over one leg, `source->target`, or into a cluster, its alias, and the price.

    `volume` is in Kafka's bytes, `wire_factor` makes them what is paid for. `price_per_gb`: None where none is
    declared.
    """

    month: str
    flow: str
    kind: Literal["link", "cluster"]
    place: str
    volume: MovedBytes
    wire_factor: Decimal
    price_per_gb: Decimal | None
    currency: str

    @property
    def measured_bytes(self) -> Decimal:
        return self.volume.measured_bytes * self.wire_factor

    @property
    def month_bytes(self) -> Decimal:
        return self.volume.month_bytes * self.wire_factor


@dataclass(frozen=True)
class Unmeasured:
    """A flow, or a topic of it, whose bytes are not in any sum, and why. `topic`: "" for the whole flow."""

    month: str
    flow: str
    topic: str
    reason: str


@dataclass(frozen=True)
class MonthOfFlows:
    """The charges of a month, what is missing in them, and the growth that the forecast of each flow goes by."""

    charges: tuple[Charge, ...]
    unmeasured: tuple[Unmeasured, ...]
    growth: Mapping[str, FilledHours] = field(default_factory=dict)


def cost_of(flows: Iterable[Flow], links: Collection[Link], measured: Measured) -> MonthOfFlows:
    """Return what flows move in a month, and its prices. A flow that carries nothing that was measured has no charge
    and is named."""
    charges, unmeasured, growth = list[Charge](), list[Unmeasured](), dict[str, FilledHours]()
    for flow in flows:
        moved = _Moved(flow, measured)
        unmeasured += moved.unmeasured
        volumes = {side: volume for side in ("source", "target") if (volume := moved.volume(side))}
        if moved.filled:
            growth[flow.id] = moved.filled
        for place, side, link in legs(flow, links):
            if side in volumes:
                price, currency = price_of(link, place)
                charges.append(
                    Charge(measured.month, flow.whole_id, "link", place, volumes[side], WIRE_FACTOR, price, currency)
                )
        if "target" in volumes:
            model = flow.target.model
            price, currency = model.price_per_gb_in, model.currency or ""
            into = flow.target.alias
            charges.append(
                Charge(measured.month, flow.whole_id, "cluster", into, volumes["target"], Decimal(1), price, currency)
            )
    return MonthOfFlows(tuple(charges), tuple(unmeasured), growth)


def legs(flow: Flow, links: Collection[Link]) -> Iterator[tuple[str, Side, Link | None]]:
    """Yield what records of a flow cross, as `from->to`, whose bytes cross it, and its link where one is declared.

    Workers beside the target fetch what the source has stored; beside the source they produce what the target gets.
    Elsewhere they do both, where a link is declared to either end, else as beside the target.
    """
    source, target, near = flow.source.alias, flow.target.alias, flow.connect.kafka

    def link_of(here: str, there: str) -> Link | None:
        return next((link for link in links if {here, there} == set(link.between)), None)

    if near == source:
        yield f"{source}->{target}", "target", link_of(source, target)
    elif near == target or not (link_of(source, near) or link_of(near, target)):
        yield f"{source}->{target}", "source", link_of(source, target)
    else:
        yield f"{source}->{near}", "source", link_of(source, near)
        yield f"{near}->{target}", "target", link_of(near, target)


def price_of(link: Link | None, direction: str) -> tuple[Decimal | None, str]:
    """Return the price of 10^9 bytes in a direction `from->to`, None where none is declared, and its currency."""
    price = link.price_per_gb if link else None
    if isinstance(price, dict):
        price = price.get(direction)
    return price, (link.currency or "") if link else ""


class _Moved:
    """What one flow carries of what was measured: factors by topic make bytes of either side of records."""

    def __init__(self, flow: Flow, measured: Measured) -> None:
        self.flow, self.measured = flow, measured
        self.unmeasured: list[Unmeasured] = []
        self.filled: FilledHours | None = None
        self._topics = {
            topic: hours
            for (alias, topic), hours in measured.topics.items()
            if alias == flow.source.alias and flow.carries(topic)
        }
        self._factors: dict[Side, dict[str, tuple[float, float, Basis, Basis]]] = {"source": {}, "target": {}}
        for topic, hours in self._topics.items():
            self._add_factors(topic, hours)
        for name in self._literal_names() if self._topics else ():
            if name not in self._topics:
                self._name(name, "nothing was measured of it")
        if not self._topics:
            self._name("", f"nothing was measured of a topic that it carries from '{flow.source.alias}'")

    def volume(self, side: Side) -> MovedBytes | None:
        factors = self._factors[side]
        amounts: dict[int, float] = {}
        covered: dict[int, float] = {}
        partitions: dict[int, float] = {}
        by_basis: dict[Basis, float] = {}
        for topic, (of_record, of_byte, record_basis, byte_basis) in factors.items():
            hours = self._topics[topic]
            columns = (hours.records, hours.broker_bytes, hours.covered_hours, hours.partitions)
            inside = self.measured.hours
            for hour, (records, sent, time, count) in enumerate(zip(*columns, strict=True), hours.first_hour):
                if not count:
                    continue
                amounts[hour] = amounts.get(hour, 0.0) + records * of_record + sent * of_byte
                covered[hour] = covered.get(hour, 0.0) + time
                partitions[hour] = partitions.get(hour, 0.0) + count
                if hour in inside:
                    for basis, size in ((record_basis, records * of_record), (byte_basis, sent * of_byte)):
                        by_basis[basis] = by_basis.get(basis, 0.0) + size
        shares = {hour: min(1.0, covered[hour] / partitions[hour]) for hour in covered}
        filled = fill_hours(amounts, shares, self.measured.hours, self.measured.now_hour)
        if filled is None:
            return None
        self.filled = filled
        bases = {basis: round(by_basis[basis]) for basis in BASES if by_basis.get(basis)}
        return MovedBytes(round(filled.measured), round(filled.total), filled.covered, bases)

    def _add_factors(self, topic: str, hours: WrittenTopic) -> None:
        """Set bytes per record and per byte of brokers' metrics, for both sides."""
        flow = self.flow
        plain = None if hours.record_bytes is None else log_bytes(hours.record_bytes)
        stored = self.measured.stored.get((flow.source.alias, topic))
        copied = self.measured.stored.get((flow.target.alias, flow.remote_topic(topic)))
        has_records = any(hours.records)
        if has_records and plain is None and stored is None:
            self._name(topic, "the size of its records is not known: what its logs hold was not sampled")
            return
        basis: Basis = "uncompressed" if stored is None else "stored"
        of_record = stored if stored is not None else plain or 0.0
        self._factors["source"][topic] = of_record, 1.0, basis, "brokers"
        if copied is not None:
            per_byte = hours.records_per_byte
            sent: tuple[float, Basis] = (1.0, "source") if per_byte is None else (copied * per_byte, "stored")
            self._factors["target"][topic] = copied, sent[0], "stored", sent[1]
        elif plain is not None and not _compresses(flow):  # what the producer sends, whatever the source has stored
            self._factors["target"][topic] = plain, 1.0, "uncompressed", "source"
        else:
            self._factors["target"][topic] = of_record, 1.0, "source", "source"

    def _literal_names(self) -> list[str]:
        included = self.flow.settings.topics.include
        return [name for item in included if (name := literal(java_pattern(item))) is not None]

    def _name(self, topic: str, reason: str) -> None:
        self.unmeasured.append(Unmeasured(self.measured.month, self.flow.id, topic, reason))


def _compresses(flow: Flow) -> bool:
    return str(flow.client("record_producer").get("compression.type", "none")) != "none"


# --- sums -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Money:
    """Money of one currency: for what was measured, and for the whole months."""

    currency: str
    so_far: Decimal
    month: Decimal
    json_keys = "currency so_far=so_far_text month=month_text"

    @property
    def so_far_text(self) -> str:
        return money_text(self.so_far)

    @property
    def month_text(self) -> str:
        return money_text(self.month)


@dataclass(frozen=True)
class CostLine:
    """Charges with the same flow, owner, link, cluster or month, added up: bytes on links (on the wire) and into
    clusters (Kafka's), measured and of the whole months, and the money.

    `unpriced`: places without a price. `covered`: the share of the time that was measured; the least where several
    flows are added.
    """

    name: str
    link_bytes: int
    link_bytes_month: int
    into_bytes: int
    into_bytes_month: int
    covered: float
    by_basis: Mapping[Basis, int]
    amounts: tuple[Money, ...]
    unpriced: tuple[str, ...] = ()
    json_keys = (
        "name link_bytes link_bytes_month into_bytes into_bytes_month covered=covered_share by_basis amounts unpriced"
    )

    @property
    def covered_share(self) -> float:
        return round(self.covered, 4)

    @property
    def basis_text(self) -> str:
        """What the bytes come from, with shares where that is several things."""
        total = sum(self.by_basis.values())
        if len(self.by_basis) < 2:
            return next(iter(self.by_basis), "-")
        return ", ".join(f"{basis} {size / total:.0%}" for basis, size in self.by_basis.items())


def cost_lines(charges: Sequence[Charge], by: By, owner: str) -> list[CostLine]:
    """Add charges up, by what `by` says; links are those of one direction. By link or cluster there are only these."""
    names: dict[By, Callable[[Charge], str]] = {
        "flow": lambda charge: charge.flow,
        "owner": lambda _: owner,
        "link": lambda charge: charge.place,
        "cluster": lambda charge: charge.place,
        "month": lambda charge: charge.month,
    }
    groups: dict[str, list[Charge]] = {}
    for charge in charges:
        if by not in {"link", "cluster"} or charge.kind == by:
            groups.setdefault(names[by](charge), []).append(charge)
    return [_line(name, groups[name]) for name in sorted(groups)]


def total_line(charges: Sequence[Charge]) -> CostLine:
    """Add all charges up."""
    return _line("all", charges)


def _line(name: str, charges: Sequence[Charge]) -> CostLine:
    def bytes_of(kind: str) -> tuple[int, int]:
        of_kind = [charge for charge in charges if charge.kind == kind]
        sums = sum(charge.measured_bytes for charge in of_kind), sum(charge.month_bytes for charge in of_kind)
        return round(sums[0]), round(sums[1])

    by_basis: dict[Basis, int] = {}
    money: dict[str, tuple[Decimal, Decimal]] = {}
    for charge in charges:
        for basis, size in charge.volume.by_basis.items():
            by_basis[basis] = by_basis.get(basis, 0) + size
        if charge.price_per_gb is not None:
            so_far, month = money.get(charge.currency, (Decimal(0), Decimal(0)))
            per_byte = charge.price_per_gb / GB
            money[charge.currency] = (
                so_far + charge.measured_bytes * per_byte,
                month + charge.month_bytes * per_byte,
            )
    amounts = tuple(Money(currency, *money[currency]) for currency in sorted(money))
    unpriced = dict.fromkeys(charge.place for charge in charges if charge.price_per_gb is None)
    bases: dict[Basis, int] = {basis: by_basis[basis] for basis in BASES if basis in by_basis}
    covered = min((charge.volume.covered for charge in charges), default=0.0)
    return CostLine(name, *bytes_of("link"), *bytes_of("cluster"), covered, bases, amounts, tuple(unpriced))


_CENTS, _FINEST = Decimal("0.01"), Decimal("0.000001")


def money_text(amount: Decimal) -> str:
    """Return an amount in cents, and what is less than ten of them with up to six digits."""
    exact = amount.quantize(_CENTS, ROUND_HALF_UP)
    if amount and abs(amount) < Decimal("0.1"):
        exact = amount.quantize(_FINEST, ROUND_HALF_UP).normalize()
        exact = exact.quantize(_CENTS) if exact == exact.quantize(_CENTS) else exact
    return f"{exact:f}"


def unmeasured_sentences(unmeasured: Iterable[Unmeasured]) -> list[str]:
    """Say what is in no sum: a sentence for each reason."""
    by_reason: dict[str, dict[str, None]] = {}
    for missing in unmeasured:
        name = f"{missing.topic} of {missing.flow}" if missing.topic else missing.flow
        by_reason.setdefault(missing.reason, {})[name] = None
    return [f"not counted: {few(list(names), 8)}: {reason}" for reason, names in by_reason.items()]
