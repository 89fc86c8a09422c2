"""Rules about a known long link: what stalls on it, and what leaves it unfilled, by the model `mm2mgr.link`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from mm2mgr.link import (
    BATCH_SHARE,
    BY_SYSTEM,
    FETCH_SECONDS,
    GAIN_WORTH_SAYING,
    LIMITS,
    USUAL_HEAP_BYTES,
    Clients,
    FlowTraffic,
    Forecast,
    Leg,
    Placement,
    Route,
    predict,
    records_of,
    window,
)
from mm2mgr.link_forecast import ENOUGH_PARTITIONS, ceilings
from mm2mgr.lint.findings import (
    READER,
    RECORDS,
    Edit,
    Hit,
    client_edit,
    client_hit,
    describe,
    edit_hit,
    estate_rule,
    key_for,
    phrase,
    rule,
)
from mm2mgr.lint.rules.sizes import FETCH, MIB, PARTITION, fetch_of_one, known_limit, number, partitions, size, tasks
from mm2mgr.lint.subject import CatchUpFacts, Estate, LinkFacts, Subject
from mm2mgr.text import rate_text, span_text

_MEASURED = "measured over an emulated link, Kafka 4.3.1"
_LONG_FETCH = 16 * MIB  # one fetch of it takes 30 s at 150 ms when the window is 64 KiB
_LONG_LINK = 0.05  # seconds of round trip; below, a window of 64 KiB still carries 1.5 MB/s
_KAFKAS_WINDOW = 65_536
_LINGER_MS = 20
_PLACEMENT_GAIN = 1.5
_WINDOW, _SENT, _BATCH, _FLYING = (
    *("receive.buffer.bytes", "send.buffer.bytes", "batch.size", "max.in.flight.requests.per.connection"),
)


class LinkedConnector(NamedTuple):
    """A connector on its link: the route of its workers, its settings, and what the model says of them."""

    wire: LinkFacts
    route: Route
    clients: Clients
    traffic: FlowTraffic
    forecast: Forecast

    @property
    def largest_batch(self) -> int:
        """The largest batch.size that the target's topics accept, in whole KiB."""
        return int(self.wire.target.message_bytes * BATCH_SHARE) // 1024 * 1024

    def with_changes(self, **changes: int) -> Forecast:
        """Return what the model says of one task with one partition after changes of the settings."""
        return predict(self.route, replace(self.clients, **changes), FlowTraffic(), self.wire.source, self.wire.target)

    def gain(self, **changes: int) -> tuple[float, float] | None:
        """Return what one partition carries now and after changes; None where they are not worth it, or it stalls."""
        now, then = self.with_changes().partition, self.with_changes(**changes).partition
        return (now, then) if now and then > GAIN_WORTH_SAYING * now else None


def on_link(subject: Subject) -> LinkedConnector | None:
    """Return a source connector on its link; None where no link or no number is known."""
    wire = subject.wire
    clients = Clients.read(subject.number) if wire else None
    if wire is None or clients is None:
        return None
    route = wire.route or Route.over_link(Leg(wire.rtt_seconds, wire.bytes_per_second), _placement(subject))
    limits = wire.source
    if not limits.read and subject.source_kafka.brokers:
        limits = replace(limits, brokers=subject.source_kafka.brokers)
    accepted = replace(wire.target, message_bytes=known_limit(subject) or wire.target.message_bytes)
    wire = replace(wire, source=limits, target=accepted)
    traffic = FlowTraffic(partitions(subject) or tasks(subject), tasks(subject))
    return LinkedConnector(wire, route, clients, traffic, predict(route, clients, traffic, limits, accepted))


def _placement(subject: Subject) -> Placement:
    """Return where its workers are: beside the target unless their own Kafka is known to be another one."""
    own = _addresses(subject.worker_property("bootstrap.servers") or "")
    records = _addresses(subject.get("producer.override.bootstrap.servers"))
    return "source" if own and records and not own & records else "target"


def _addresses(text: str) -> set[str]:
    return {address.strip() for address in text.split(",") if address.strip()}


@rule("fetch-stalls", "error", "measured over an emulated link, Kafka 4.3.1", types=("source",))
def fetch_stalls(subject: Subject) -> Iterator[Hit]:
    """A fetch takes longer over this link than the consumer waits for it.

    One connection carries its bytes in flight divided by the round trip: 0.8 MB/s at 100 ms with the default
    receive.buffer.bytes of 64 KiB, about 1.7 MB/s where the operating system sizes the window and the source's brokers
    have their default socket.send.buffer.bytes. If fetch.max.bytes at that rate takes more than request.timeout.ms (30
    s), the consumer disconnects and repeats the same fetch in an endless loop: RUNNING, no records, one INFO line
    "Disconnecting from node". Seen with a 50 MiB fetch, and with Kafka's defaults at 200 ms and 17 partitions per task.
    Measured on 4.3.1.
    """
    link = on_link(subject)
    if link is None or (leg := link.route.reading) is None:
        return
    timeout, seconds, fetch = (
        link.clients.fetch_timeout_ms / 1000,
        link.forecast.fetch_seconds,
        link.forecast.fetch_bytes,
    )
    if seconds <= timeout:
        return
    rate = fetch / (seconds - leg.rtt_seconds)
    limit = max(int(rate * timeout * FETCH_SECONDS / 30), 65536)
    message = (
        f"a fetch of {size(fetch)} takes {span_text(seconds)} at {rate / 1e6:.2f} MB/s per connection (round trip "
        f"{leg.rtt_seconds * 1000:.0f} ms), longer than request.timeout.ms ({span_text(timeout)}): no record arrives"
    )
    edits, more = [client_edit(subject, READER, FETCH, str(limit))], ""
    if link.clients.receive_buffer_bytes == BY_SYSTEM:
        more = ", or set socket.send.buffer.bytes=-1 on the source's brokers and silence this rule"
    else:
        edits.append(client_edit(subject, READER, _WINDOW, "-1"))
    key = subject.written_key(READER, FETCH) or subject.written_key(READER, PARTITION)
    yield edit_hit(subject, message, edits, key or key_for(subject, READER, _WINDOW), more)


@rule("window-small", "warning", "measured over an emulated link, Kafka 4.3.1", types=("source",))
def window_small(subject: Subject) -> Iterator[Hit]:
    """The receive window limits the rate of a long link.

    receive.buffer.bytes (64 KiB by default) limits a connection to that much per round trip: 0.8 MB/s at 100 ms. A
    fetch of 16 MiB then takes 20 s, one of 50 MiB over a minute, which exceeds request.timeout.ms: the consumer
    disconnects and starts again, and nothing is mirrored while the state is RUNNING. On a link that is known to be
    long, without such fetches, it is a hint. Set -1, so that the operating system sizes the window. Source: measured
    over an emulated link, 4.3.1.
    """
    if subject.wire is None:
        if fetch_of_one(subject) < _LONG_FETCH or subject.number(READER, _WINDOW) != _KAFKAS_WINDOW:
            return
        effect = "from about 150 ms of round trip a fetch exceeds request.timeout.ms and nothing arrives"
        message = f"{describe(subject, READER, PARTITION)} is read through a window of 64 KiB ({_WINDOW}): {effect}"
        yield replace(client_hit(subject, READER, _WINDOW, "-1", message), key=key_for(subject, READER, PARTITION))
        return
    link = on_link(subject)
    leg = link.route.reading if link else None
    if link and leg and leg.rtt_seconds >= _LONG_LINK and (gain := link.gain(receive_buffer_bytes=BY_SYSTEM)):
        rate = window("consumer", link.clients.receive_buffer_bytes) / leg.rtt_seconds / 1e6
        trip = leg.rtt_seconds * 1000
        effect = f"round trip of {trip:.0f} ms, and {gain[1] / 1e6:.2f} MB/s without that limit"
        message = f"{describe(subject, READER, _WINDOW)}: one connection carries at most {rate:.2f} MB/s at a {effect}"
        yield client_hit(subject, READER, _WINDOW, "-1", message).with_severity("info")


@rule("fetch-small", "info", _MEASURED, types=("source",))
def fetch_small(subject: Subject) -> Iterator[Hit]:
    """One fetch per round trip is too small for a long link.

    A partition is never fetched again before its last fetch was handed on, so one partition carries one
    max.partition.fetch.bytes per round trip, plus the time to transfer it: with 1 MiB 6.5 MB/s at 100 ms and 200
    Mbit/s, with 16 MiB 15 MB/s. Each task may hold a fetch twice, so raise it only as far as the heap allows. Reported
    where receive.buffer.bytes is not the limit, and not for values that mm2mgr itself chose for the link.
    """
    link = on_link(subject)
    if link is None or (leg := link.route.reading) is None or _by_mm2mgr(subject, READER, PARTITION):
        return
    share = link.forecast.fetch_bytes / max(link.forecast.fetch_seconds - leg.rtt_seconds, 1e-9)
    enough = min(16 * MIB, int(share * FETCH_SECONDS))
    polled = max(records_of(enough), link.clients.poll_records)
    fetch = max(enough, link.clients.fetch_bytes)
    larger = {"partition_fetch_bytes": enough, "fetch_bytes": fetch, "poll_records": polled}
    if link.with_changes().limit == "request/response" and (gain := link.gain(**larger)):
        effect = f"{leg.words}, {LIMITS['request/response']}; {rate_text(gain[1])} with {size(enough)}"
        message = f"{describe(subject, READER, PARTITION)}: one partition carries {rate_text(gain[0])} at {effect}"
        edits = [client_edit(subject, READER, PARTITION, str(enough))]
        if enough > link.clients.fetch_bytes:
            edits.append(client_edit(subject, READER, FETCH, str(enough)))
        if polled > link.clients.poll_records:
            edits.append(client_edit(subject, READER, "max.poll.records", str(polled)))
        yield edit_hit(subject, message, edits, key_for(subject, READER, PARTITION))


@rule("request-stalls", "error", "NetworkClient, KIP-91", types=("source",))
def request_stalls(subject: Subject) -> Iterator[Hit]:
    """A request of the producer takes longer over this link than the producer waits for it.

    Where the workers are not beside the target, the records cross the link in produce requests of up to
    max.request.size. A request that takes longer than request.timeout.ms (30 s by default) is given up and sent again,
    although its records may have arrived: the link carries the same records over and over. Fewer tasks, smaller batches
    or a longer time-out end it.
    """
    link = on_link(subject)
    if link is None or (leg := link.route.writing) is None:
        return
    timeout, seconds = link.clients.request_timeout_ms / 1000, link.forecast.request_seconds
    if seconds > timeout:
        effect = f"longer than request.timeout.ms ({span_text(timeout)}): it is sent again and again"
        message = (
            f"a produce request takes {span_text(seconds)} over {leg.words} shared by {tasks(subject)} tasks, {effect}"
        )
        yield client_hit(subject, RECORDS, "request.timeout.ms", str(int(seconds * 1.5) * 1000), message)


@rule("batch-small", "warning", _MEASURED, types=("source",))
def batch_small(subject: Subject) -> Iterator[Hit]:
    """Batches are too small for a long link between the workers and the target.

    Where the workers are beside the source, a partition sends one batch per request in flight and round trip: with
    batch.size of 16 KiB and one request in flight (the defaults) 0.15 MB/s at 100 ms, whatever the bandwidth. Batches
    just below the max.message.bytes of the target's topics (900 KiB fit the default), with five requests in flight and
    idempotence, fill the link with one partition: 23.6 MB/s measured over 200 Mbit/s. Compression does not help: a
    batch is full before it is compressed. Not reported for values that mm2mgr itself chose for the link.
    """
    link = on_link(subject)
    if link is None or (leg := link.route.writing) is None or _by_mm2mgr(subject, RECORDS, _BATCH):
        return
    right = link.largest_batch
    if right > link.clients.batch_bytes and (gain := link.gain(batch_bytes=right)):
        effect = f"one partition sends {rate_text(gain[0])} over {leg.words}; {rate_text(gain[1])} with {size(right)}"
        message = f"{describe(subject, RECORDS, _BATCH)}: {effect}"
        edits = [client_edit(subject, RECORDS, _BATCH, str(right))]
        if (number(subject, "linger.ms") or 0) < _LINGER_MS:
            edits.append(client_edit(subject, RECORDS, "linger.ms", str(_LINGER_MS)))
        yield edit_hit(subject, message, edits, key_for(subject, RECORDS, _BATCH))


@rule("one-in-flight", "info", _MEASURED, types=("source",))
def one_in_flight(subject: Subject) -> Iterator[Hit]:
    """The producer waits a round trip for each answer before it sends the next request.

    Connect gives its producers one request in flight and no idempotence, so that records keep their order. Over a long
    link that is one request per round trip. An idempotent producer keeps the order with up to five in flight:
    enable.idempotence=true, acks=all, max.in.flight.requests.per.connection=5. Brokers from 2.8 on allow it to all who
    may write the topic (KIP-679); older ones ask for IdempotentWrite on the cluster. mm2mgr sets it for flows that
    write over a link where the target's version is known (`mm2mgr link read`) or the target has no security.
    """
    link = on_link(subject)
    if link is None or (leg := link.route.writing) is None or link.clients.in_flight > 1:
        return
    if gain := link.gain(in_flight=5):
        effect = f"{leg.words}; {rate_text(gain[1])} with five requests in flight"
        message = f"{describe(subject, RECORDS, _FLYING)}: one partition sends {rate_text(gain[0])} over {effect}"
        edits = [client_edit(subject, RECORDS, _FLYING, "5")]
        if not subject.exactly_once:
            edits += [
                client_edit(subject, RECORDS, *setting) for setting in (("enable.idempotence", "true"), ("acks", "all"))
            ]
        more = " if the target's brokers are 2.8 or newer, or allow IdempotentWrite"
        yield edit_hit(subject, message, edits, key_for(subject, RECORDS, _FLYING), more)


@rule("send-window-small", "info", _MEASURED, types=("source",))
def send_window_small(subject: Subject) -> Iterator[Hit]:
    """The producer's socket buffer limits the rate of a long link.

    send.buffer.bytes (128 KiB by default) limits what a producer has on its way to a broker: about 345 kB, 3.5 MB/s at
    100 ms. Set -1, so that the operating system sizes it. Reported where the target's brokers are known to allow more.
    """
    link = on_link(subject)
    if link is None or (leg := link.route.writing) is None:
        return
    if link.forecast.task_limit == "client window" and (gain := link.gain(send_buffer_bytes=BY_SYSTEM)):
        effect = f"{leg.words}, {rate_text(gain[1])} without that limit"
        message = f"{describe(subject, RECORDS, _SENT)}: one connection carries {rate_text(gain[0])} over {effect}"
        yield client_hit(subject, RECORDS, _SENT, "-1", message)


@rule("broker-window", "info", _MEASURED, types=("source",))
def broker_window(subject: Subject) -> Iterator[Hit]:
    """The socket buffers of the brokers cap a long link.

    What is on its way on one connection is the smaller of what the two ends allow, and the client's end is not the only
    one: the source's brokers send with socket.send.buffer.bytes (102400 by default: about 2 MB/s at 100 ms), the
    target's receive with socket.receive.buffer.bytes (102400: about 1.3 MB/s). -1 lets the operating system size them.
    Both are static: every broker needs a restart, one after the other. Until then more tasks make up for it, each with
    connections of its own; one partition cannot. Reported where `mm2mgr link read` has read the brokers.
    """
    link = on_link(subject)
    if link is None:
        return
    total, count = partitions(subject), tasks(subject)
    traffic = FlowTraffic(total or max(ENOUGH_PARTITIONS, count), count)
    for ceiling in ceilings(link.route, link.clients, traffic, link.wire.source, link.wire.target):
        cluster = (subject.source if ceiling.end == "source" else subject.target) or f"the {ceiling.end}"
        effect = f"{rate_text(ceiling.now)} per partition, {rate_text(ceiling.lifted)} without that limit"
        message = f"{ceiling.key} of the brokers of {cluster} caps the link ({ceiling.leg.words}): {effect}"
        yield Hit(message, f"{ceiling.advice(cluster)}; {ceiling.meanwhile(count)}", "")


@rule("link-memory", "warning", "measured: a heap of 512 MiB, fetches of 12 and 50 MiB", types=("source",))
def link_memory(subject: Subject) -> Iterator[Hit]:
    """Fetches and buffers written by hand for a link need more heap than its workers have.

    A task holds its fetches twice (arriving, and as records) and buffer.memory. After an outage every task has a
    backlog, and the workers fail with OutOfMemoryError one after the other. The heap is `workers: {memory: …}` of the
    Connect cluster, 512 MiB where that is not declared. Without the key mm2mgr chooses sizes that fit.
    """
    link = on_link(subject)
    if link is None or link.wire.route is None:
        return
    heap, sharing = link.wire.heap_bytes or USUAL_HEAP_BYTES, link.wire.worker_tasks
    by_hand = [
        (client, plain)
        for client, plain in ((READER, FETCH), (READER, PARTITION), (RECORDS, "buffer.memory"))
        if subject.written_key(client, plain) and not _by_mm2mgr(subject, client, plain)
    ]
    if by_hand and not link.forecast.fits(heap, sharing):
        need = link.forecast.task_heap_bytes * sharing
        client, plain = by_hand[0]
        effect = f"beside what it needs itself, and its heap is {size(heap)}"
        message = f"{describe(subject, client, plain)}: {sharing} tasks on a worker may need {size(need)} {effect}"
        more = (
            ", so that mm2mgr chooses sizes that fit, or declare more memory"
            f" (connect: {subject.connector.connect}: workers: memory)"
        )
        fix = f"{phrase(subject, [Edit(key_for(subject, *setting), None) for setting in by_hand])}{more}"
        yield Hit(message, fix, key_for(subject, *by_hand[0]))


@rule("link-placement", "info", _MEASURED, types=("source",))
def link_placement(subject: Subject) -> Iterator[Hit]:
    """One partition would carry more over this link if the workers were beside the source.

    A consumer asks for a partition again only when the last fetch was handed on, so one partition is request and
    response over the link. A producer with five requests in flight is not: one partition fills the link. Reported
    where both kinds of brokers let it (`mm2mgr link read`), for flows whose workers read over the link. With many
    partitions more tasks do the same.
    """
    link = on_link(subject)
    if link is None or link.wire.route is None or (leg := link.route.reading) is None or link.route.writing:
        return
    sent = Clients(send_buffer_bytes=BY_SYSTEM, batch_bytes=link.largest_batch, in_flight=5)
    there = predict(Route.over_link(leg, "source"), sent, FlowTraffic(), link.wire.source, link.wire.target).partition
    here = link.with_changes().partition
    if here and there > _PLACEMENT_GAIN * here:
        effect = f"read over it; beside {subject.source}, they can send {rate_text(there)}"
        message = f"one partition cannot exceed {rate_text(here)} on this link ({leg.words}) while the workers {effect}"
        yield Hit(
            message,
            f"run the flow on a Connect cluster beside {subject.source} (run_on) if a single partition needs more",
            "",
        )


@estate_rule("link-unused", "warning", "mm2mgr's own declarations")
def link_unused(estate: Estate) -> Iterator[Hit]:
    """A declared link is between two clusters that no flow connects.

    A link counts for the flows between its two clusters, in either direction, and for those whose workers run beside
    one of them. One that no flow uses has no effect: a wrong alias, or a flow that is gone.
    """
    for spot, ends in estate.unused_links:
        yield Hit(f"no flow uses the link between {ends}", "correct its aliases, or remove it", spot=spot)


@estate_rule("limit-below-traffic", "warning", "KIP-13")
def limit_below_traffic(estate: Estate) -> Iterator[Hit]:
    """A catch-up limit is not above the usual traffic, so that a lag is never caught up.

    The limit is a quota on all that is written, new records too. What is left above the traffic works off a backlog: at
    or below it the lag grows for ever, and just above it takes very long. The traffic is what `mm2mgr size` measured,
    of all flows that share the limit.
    """
    for limit in estate.limits:
        if limit.traffic and limit.bytes_per_second <= limit.traffic:
            effect = f"{rate_text(limit.traffic)}: a lag never gets smaller"
            message = f"the catch-up limit of {rate_text(limit.bytes_per_second)} is not above the traffic of {effect}"
            yield _of_limit(limit, message, "raise it, so that enough is left for a backlog, or remove catch_up")


@estate_rule("limit-above-link", "info", "mm2mgr's own declarations")
def limit_above_link(estate: Estate) -> Iterator[Hit]:
    """A catch-up limit is above what its link carries, so that it holds nothing back.

    The bandwidth of the link is the limit then, and a backlog takes all of it.
    """
    for limit in estate.limits:
        route = limit.subjects[0].wire and limit.subjects[0].wire.route
        carried = min((leg.payload for leg in route.legs), default=0.0) if route else 0.0
        if 0 < carried <= limit.bytes_per_second:
            effect = f"{rate_text(carried)} that the link carries: it holds nothing back"
            message = f"the catch-up limit of {rate_text(limit.bytes_per_second)} is above the {effect}"
            yield _of_limit(limit, message, "lower it, or remove catch_up")


def _of_limit(limit: CatchUpFacts, message: str, fix: str) -> Hit:
    first, *others = limit.subjects
    return Hit(message, fix, "producer.override.client.id", first, others=tuple(others))


def _by_mm2mgr(subject: Subject, client: str, plain: str) -> bool:
    """Tell whether a value was chosen for the link by mm2mgr, and not by people."""
    key = subject.written_key(client, plain)
    return subject.form == "tree" and bool(key) and key not in subject.spots
