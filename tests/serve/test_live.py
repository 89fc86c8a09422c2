"""On real brokers and a real worker: what serve shows of a flow is what was produced."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.records import Producer
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.observe.lag_report import LagLevel
from mm2mgr.operations import EstateWatch, HistoryReport, Plan, ServeOrder, Workspace, apply
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from mm2mgr.sandbox.runtime import kafka_runtime
from mm2mgr.serve.metrics import exposition
from tests.live.conftest import WORKER, serving

pytestmark = pytest.mark.live
FLOW = "orders:A->B"
TREE = """
owner: live
defaults: {{clusters: {{replication_factor: 1}}}}
clusters:
  A: {{bootstrap_servers: "{a}"}}
  B: {{bootstrap_servers: "{b}"}}
connect:
  cb: {{url: "{url}", kafka: B}}
flows:
  orders: {{sources: [A], targets: [B], topics: {{include: [orders]}}, tasks: {{max: 2}}, refresh_interval: 5s}}
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    folder = tmp_path_factory.mktemp("serve")
    runtime = kafka_runtime()
    a, b = (Broker(name, folder / name, runtime=runtime) for name in ("A", "B"))
    with pytest.MonkeyPatch.context() as patch, serving([a, b]):
        patch.setenv("MM2MGR_STATE", str(folder / "state"))
        worker = Worker("cb", folder / "cb", b.bootstrap_servers, WORKER, runtime=runtime)
        with serving([worker]):
            file = folder / "tree.yaml"
            file.write_text(TREE.format(a=a.bootstrap_servers, b=b.bootstrap_servers, url=worker.url))
            made = Workspace((file,))
            source = kafka_access(made.topology.clusters["A"])
            with Kafka(source) as kafka:
                kafka.create_topics({"orders": (3, 1, {})})
            with Producer(source) as producer:
                for number in range(300):
                    producer.send(("orders", number % 3), b"%d" % number)
            apply(made, wait_seconds=60)
            yield made


def test_what_serve_knows_is_what_was_mirrored(workspace: Workspace) -> None:
    watch = EstateWatch(workspace, ServeOrder(every_seconds=1, survey_seconds=600))
    watch.start()
    try:
        deadline, owner = time.monotonic() + 180, watch.view.owner
        wanted = [
            f'mm2mgr_flow_health{{flow="{FLOW}",health="ok",owner="{owner}"}} 1.0',
            f'mm2mgr_flow_lag_records{{flow="{FLOW}",owner="{owner}"}} 0.0',
        ]
        while not (
            set(wanted) <= set(exposition(watch.view, time.monotonic()).decode().splitlines()) and watch.view.survey
        ):
            assert time.monotonic() < deadline, exposition(watch.view, time.monotonic()).decode() + watch.view.error
            time.sleep(0.1)
        view = watch.view
        assert view.state(time.monotonic()) == "ok"
        assert view.failed_looks == 0
        status = view.status(FLOW)
        assert status is not None
        assert sum(row.offsets.log.end for row in view.facts(status).rows(LagLevel.PARTITION) if row.offsets) == 300
        assert view.survey is not None
        assert isinstance(view.survey.plan, Plan)
        assert view.survey.plan.counts()["no-op"] == 3
        (worker,) = view.survey.workers["cb"].workers
        assert (worker.kafka != "", worker.failure) == (True, ""), "it is asked for its version"
        assert view.survey.workers["cb"].unlisted == "", "the group of the workers is known"
        assert worker.worker in {task.worker for task in status.tasks}
        assert isinstance(view.survey.history, HistoryReport)
        assert [entry.action for entry in view.survey.history.entries] == ["create"] * 3
        assert (view.traffic.unknown, view.traffic.bytes_unknown, view.traffic.warnings) == ("", "", ())
        point = view.traffic_points(FLOW, time.time(), 3600)[-1]
        assert (point.end, point.position, point.lag) == (300, 300, 0)
        written = view.survey.declared[FLOW]
        assert len(written.connectors) == 3
        assert {key: value for key, value, _ in written.settings}["topics.include"] == "orders"
    finally:
        assert watch.close(30)
