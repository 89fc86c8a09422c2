"""What one answer of `mm2mgr serve` costs: the overview, a flow, metrics and JSON of 240 pairs with 8 tasks each (1 920 in all).

Prints the median of several answers in milliseconds, their sizes, and a bare answer of the same server (/healthz) beside them. Where there is
a Chromium (Debian's package) and playwright, also the first contentful paint in it of the overview and of that bare answer.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mm2mgr.operations.estate_view import EstateView
from mm2mgr.problems.health import TaskState
from mm2mgr.serve.app import application
from mm2mgr.serve.pages import flow_link
from tests.serve.estate import CHROMIUM, NOW, SURVEY, flow_status, look_of, problem, serving, view_of

SOURCES, TARGETS, TASKS = 40, 6, 8
# Milliseconds from the start of the request to the first paint of text.
FIRST_PAINT = """() => new Promise(done => new PerformanceObserver(
    list => done(list.getEntriesByName('first-contentful-paint')[0].startTime)).observe({type: 'paint', buffered: true}))"""


def estate() -> tuple[EstateView, str]:
    """Return the view of 240 pairs, a third of them with a problem, and the path of the page of one flow."""
    names = [f"orders:dc{source:02}->agg-{target}" for source in range(SOURCES) for target in range(TARGETS)]
    tasks = tuple(TaskState(task, "RUNNING", "worker.example:8083", 4) for task in range(TASKS))
    flows = [
        flow_status(name, name.partition(":")[2], tasks=tasks, problems=(problem(name),) if number % 3 == 0 else ())
        for number, name in enumerate(names)
    ]
    lags = {name: {f"topic-{topic}": topic for topic in range(32)} for name in names}
    return view_of(look_of(flows, lags), survey=SURVEY), flow_link(names[0])


async def answers(view: EstateView, flow: str, count: int) -> None:
    app = application(lambda: view, clock=lambda: NOW + 5)
    async with httpx.AsyncClient(
        trust_env=False, transport=httpx.ASGITransport(app), base_url="http://localhost"
    ) as client:
        for path in ("/healthz", "/", "/flows", flow, "/metrics", "/api/status"):
            took = []
            for _ in range(count):
                began = time.perf_counter()
                answer = await client.get(path)
                took.append(time.perf_counter() - began)
                assert answer.status_code == 200
            print(f"{path:40} {1000 * statistics.median(took):8.1f} ms {len(answer.content) / 1000:8.0f} kB")


def paints(view: EstateView, count: int) -> None:
    from playwright.sync_api import sync_playwright

    with serving(lambda: view) as url, sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        took: dict[str, list[float]] = {"/healthz": [], "/": []}
        for _ in range(count):
            for path, times in took.items():
                page = chromium.new_page(viewport={"width": 1280, "height": 900})
                page.goto(url + path)
                times.append(page.evaluate(FIRST_PAINT))
                page.close()
        chromium.close()
    bare, overview = (statistics.median(times) for times in took.values())
    print(
        f"first paint: /healthz {bare:.0f} ms, overview {overview:.0f} ms, {overview / bare:.2f} times (bound 1000 ms)"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=9, help="answers of each page (default: 9)")
    asked = parser.parse_args().answers
    estate_view, flow_path = estate()
    asyncio.run(answers(estate_view, flow_path, asked))
    if CHROMIUM and find_spec("playwright"):
        paints(estate_view, asked)
