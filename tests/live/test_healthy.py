"""A healthy estate with bursts and quiet topics, looked at by `serve` and a real Prometheus: no problem and no alert, for as long as is asked.

MM2MGR_HEALTHY_MINUTES=60 pytest tests/live/test_healthy.py
"""

from __future__ import annotations

import os
import threading
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from httpx import Client

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.records import Producer
from tests.serve.test_rules import PROMETHEUS, prometheus

from .command import Tree
from .pair import flow, serving_pair
from .seen import commit, create

MINUTES = float(os.environ.get("MM2MGR_HEALTHY_MINUTES", "0"))
BURST_RECORDS, BURST_EVERY_SECONDS, RARE_EVERY_SECONDS = 50_000, 120, 300
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(MINUTES == 0, reason="takes as long as MM2MGR_HEALTHY_MINUTES says"),
    pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus on this machine: apt-get install prometheus"),
]


def produce(access: KafkaAccess, end: threading.Event) -> None:
    """Write some records each second to `busy`, a burst now and then, and one record now and then to `rare`; a group follows."""
    with Producer(access) as producer:
        for second in count():
            for number in range(BURST_RECORDS if second % BURST_EVERY_SECONDS == 60 else 20):
                producer.send(("busy", number % 4), b"x" * 200)
            if second % RARE_EVERY_SECONDS == 90:
                producer.send(("rare", 0), b"at last")
            producer.flush()
            if second % 10 == 0:
                commit(access, "readers", "busy", 5 * second)
            if end.wait(1):
                return


def test_nothing_is_said_of_an_estate_that_is_well(tree: Tree, tmp_path: Path) -> None:
    with serving_pair(tmp_path) as pair:
        create(pair.source, ["busy"], 4)
        create(pair.source, ["rare", "quiet", "empty"], 2)
        with Producer(pair.source) as producer:
            for topic in ("busy", "rare", "quiet"):
                producer.send((topic, 0), b"the first")
        tree.write(pair.yaml("well", flow("busy", "busy") + flow("slow", '"rare|quiet|empty"', ", max_lag: 2m")))
        tree.run("apply", "--yes")
        end = threading.Event()
        traffic = threading.Thread(target=produce, args=(pair.source, end), daemon=True)
        traffic.start()
        try:
            with tree.serve("--every", "10", "--with", "watch") as (_, url):
                rules = tree.run("rules")
                with (
                    prometheus(tmp_path, rules, url) as asked,
                    Client(base_url=asked, trust_env=False, timeout=60) as client,
                ):

                    def values(query: str) -> list[tuple[dict[str, str], float]]:
                        found: dict[str, Any] = client.get("/api/v1/query", params={"query": query}).json()
                        return [(one["metric"], float(one["value"][1])) for one in found["data"]["result"]]

                    traffic.join(60 * MINUTES)
                    assert traffic.is_alive(), "the traffic ended early"
                    (looks,) = values("max_over_time(mm2mgr_looks_total[1d])")
                    (arrived,) = values('max_over_time(sum(mm2mgr_flow_health{health="ok"})[1d:10s])')
                    assert looks[1] > 3 * MINUTES
                    assert arrived[1] == 2, "both flows were looked at"
                    assert values("max_over_time(mm2mgr_problem[1d]) > 0") == []
                    assert values('last_over_time(ALERTS{alertstate="firing"}[1d])') == []
        finally:
            end.set()
            traffic.join(60)
