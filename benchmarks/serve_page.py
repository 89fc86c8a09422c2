"""What one answer of `mm2mgr serve` costs: the overview, a flow, metrics and JSON of 240 pairs with 8 tasks each (1 920 in all).

Prints the median of several answers in milliseconds, their sizes, and a bare answer of the same server (/healthz) beside them.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mm2mgr.observe.health import TaskState
from mm2mgr.output.serve_page import flow_link
from mm2mgr.serve.app import application
from tests.serve.estate import NOW, SURVEY, flow_status, look_of, view_of

SOURCES, TARGETS, TASKS, ANSWERS = 40, 6, 8, 9


async def measured() -> None:
    names = [f"orders:dc{source:02}->agg-{target}" for source in range(SOURCES) for target in range(TARGETS)]
    tasks = tuple(TaskState(task, "RUNNING", "worker.example:8083", 4) for task in range(TASKS))
    flows = [flow_status(name, name.partition(":")[2], tasks=tasks) for name in names]
    lags = {name: {f"topic-{topic}": topic for topic in range(32)} for name in names}
    view = view_of(look_of(flows, lags), survey=SURVEY)
    app = application(lambda: view, clock=lambda: NOW + 5)
    async with httpx.AsyncClient(
        trust_env=False, transport=httpx.ASGITransport(app), base_url="http://localhost"
    ) as client:
        for path in ("/healthz", "/", "/flows", flow_link(names[0]), "/metrics", "/api/status"):
            took = []
            for _ in range(ANSWERS):
                began = time.perf_counter()
                answer = await client.get(path)
                took.append(time.perf_counter() - began)
                assert answer.status_code == 200
            print(f"{path:40} {1000 * statistics.median(took):8.1f} ms {len(answer.content) / 1000:8.0f} kB")


if __name__ == "__main__":
    asyncio.run(measured())
