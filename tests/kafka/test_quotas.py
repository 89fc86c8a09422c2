"""Client quotas over a real socket: what is read and written, who may, and what is said when it does not work."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.quotas import DEFAULT, QuotaEntity, read_quotas, write_quotas

from .quota_broker import QuotaBroker, of_client, serving_quotas

OURS, BOTH = QuotaEntity("mm2mgr.team/orders:a->b"), QuotaEntity("mm2mgr.team/orders:a->b", "anna")
PASSWORD = "pa55-of-brokers"


def access(broker: QuotaBroker, mechanism: str = "", user: str = "mm2mgr", password: str = PASSWORD) -> KafkaAccess:
    module = "Plain" if mechanism == "PLAIN" else "Scram"
    jaas = f'org.apache.kafka.common.security.{module}LoginModule required username="{user}" password="{password}";'
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    return KafkaAccess("agg", broker.address, login if mechanism else {})


def test_quotas_of_producers_are_read_with_the_number_of_brokers() -> None:
    quotas = {
        of_client("web"): {"producer_byte_rate": 1e6, "consumer_byte_rate": 5.0},
        of_client("reads"): {"consumer_byte_rate": 5.0},
        (("user", None),): {"producer_byte_rate": 3e6},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 4.0},
        (("user", "anna"), ("client-id", None)): {"producer_byte_rate": 2.5},
    }
    with serving_quotas(QuotaBroker(200, quotas)) as broker:
        found = read_quotas(access(broker))
    assert found.brokers == 200
    assert found.rates == {
        QuotaEntity("web"): 1e6,
        QuotaEntity(user=DEFAULT): 3e6,
        QuotaEntity(DEFAULT, "anna"): 2.5,
    }


def test_quotas_are_set_and_removed_and_others_stay() -> None:
    web = of_client("web"), {"producer_byte_rate": 1e6}
    with serving_quotas(QuotaBroker(quotas=dict([web]))) as broker:
        assert write_quotas(access(broker), {OURS: 5_000_000, BOTH: 7}) == {}
        assert read_quotas(access(broker)).rates == {QuotaEntity("web"): 1e6, OURS: 5e6, BOTH: 7.0}
        broker.quotas[of_client(OURS.client_id)]["consumer_byte_rate"] = 9.0  # somebody else's, on the same entity
        assert write_quotas(access(broker), {OURS: None, BOTH: None}) == {}
        assert broker.quotas == dict([web, (of_client(OURS.client_id), {"consumer_byte_rate": 9.0})])


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_is_as_that_of_the_other_clients(mechanism: str) -> None:
    with serving_quotas(QuotaBroker(logins={"mm2mgr": PASSWORD, "a,b=c": "x"})) as broker:
        assert read_quotas(access(broker, mechanism)).brokers == 3
        assert read_quotas(access(broker, mechanism, "a,b=c", "x")).brokers == 3
        with pytest.raises(KafkaError, match="agg: logging in failed: Authentication failed") as refused:
            read_quotas(access(broker, mechanism, password="wrong-one"))
    assert "wrong-one" not in refused.value.one_line


def test_a_missing_right_names_the_rights() -> None:
    with serving_quotas(QuotaBroker(unreadable=(31, None), refuse=(31, None))) as broker:
        with pytest.raises(KafkaError, match="agg: reading client quotas failed: this login may not do that") as error:
            read_quotas(access(broker))
        assert error.value.hint
        assert "DescribeConfigs on the cluster" in error.value.hint
        assert write_quotas(access(broker), {OURS: 5}) == {OURS: "this login may not do that"}


def test_a_refusal_is_told_for_each_quota_in_the_brokers_words() -> None:
    with serving_quotas(QuotaBroker(refuse=(42, "not\nlike this"))) as broker:
        assert write_quotas(access(broker), {OURS: 5, BOTH: None}) == dict.fromkeys((OURS, BOTH), "not like this")


def test_a_silent_broker_is_waited_for_until_the_deadline() -> None:
    with serving_quotas(QuotaBroker(silent=True)) as broker:
        began = time.monotonic()
        with pytest.raises(KafkaError, match=r"agg: no answer about client quotas within 0\.3 s"):
            read_quotas(access(broker), timeout_seconds=0.3)
    assert time.monotonic() - began < 15


def test_the_next_server_is_tried_where_one_is_away(closed_port: int) -> None:
    with serving_quotas() as broker:
        reach = KafkaAccess("agg", f"127.0.0.1:{closed_port},{broker.address}")
        assert read_quotas(reach).brokers == 3
    with pytest.raises(KafkaError, match=r"agg: no broker of .* answered: Connection refused"):
        read_quotas(KafkaAccess("agg", f"127.0.0.1:{closed_port}"))


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\5\0\0\0\1\0", b"\0\0\0\4\0\0\0\7"]
)
def test_what_is_no_broker_is_an_error_and_no_crash(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            line, _ = listening.accept()
            with line:
                line.recv(100)
                line.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(KafkaError, match="agg: asking about client quotas failed"):
            read_quotas(KafkaAccess("agg", f"127.0.0.1:{listening.getsockname()[1]}"), 5.0)
        thread.join()
