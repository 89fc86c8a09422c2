"""One lab for all live tests of lint: started at the first, ended after the last, each process by its own id."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from mm2mgr.sandbox.runtime import kafka_runtime
from tests.lint.lab import LARGE_BYTES, Lab
from tests.live.conftest import serving

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_mirror="mirror-secret";'
STOCK = {"auto.create.topics.enable": "true"}
# As some workers have it for brokers of their own that want a client certificate; nothing here does, so no file is opened.
WITH_STORE = {
    "producer.ssl.keystore.location": "/nonexistent/worker.p12",
    "producer.ssl.keystore.password": "of-worker",
}


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder, runtime = tmp_path_factory.mktemp("lint"), kafka_runtime()
    listeners = {"PLAINTEXT": "PLAINTEXT", "LOGIN": "SASL_PLAINTEXT"}
    a = Broker(
        "a",
        folder / "a",
        {
            **STOCK,
            "message.max.bytes": str(LARGE_BYTES),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": LOGIN,
        },
        listeners=listeners,
        runtime=runtime,
    )
    b = Broker("b", folder / "b", STOCK, runtime=runtime)
    with serving([a, b]):
        # A task that fails waits that long for records that are still on their way.
        flush = {"offset.flush.interval.ms": "1000", "offset.flush.timeout.ms": "1000"}
        on_a = Worker("on-a", folder / "on-a", a.bootstrap_servers, {**flush, **WITH_STORE}, runtime=runtime)
        on_b = Worker("on-b", folder / "on-b", b.bootstrap_servers, flush, runtime=runtime)
        with serving([on_a, on_b]):
            yield Lab(a, b, on_a, on_b, {each.bootstrap_servers: _cluster_id(each) for each in (a, b)})


def _cluster_id(broker: Broker) -> str:
    with Kafka(KafkaAccess(broker.name, broker.bootstrap_servers), timeout_seconds=30) as kafka:
        return kafka.cluster_id()
