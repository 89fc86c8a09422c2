"""Take the pictures of the page of `serve` that README and docs show: docs/images/overview-*.png, of a made estate of nine flows.

    python -m tools.screenshots

needs the package playwright and a Chromium of the machine. Nothing of it depends on the clock, so that a picture changes only where
the page does. Colours beyond the 256 most used become the nearest of these, which keeps each file below 150 kB.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from mm2mgr.evidence.traffic import TrafficHistory
from mm2mgr.operations.estate_view import EstateView
from tests.serve.estate import CHROMIUM, flow_traffic, serving
from tests.serve.shop import shop

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
AT = 1_785_485_520.0  # 31 July 2026, 08:12 UTC
PICTURES: Mapping[str, tuple[int, int, Literal["light", "dark"]]] = {
    "overview-light": (1280, 965, "light"),
    "overview-dark": (1280, 965, "dark"),
    "overview-phone": (400, 800, "light"),
}
"""Width, height and theme of each picture."""
MOST_BYTES = 150_000
_RATES = {"orders": 900.0, "payments": 240.0, "clicks": 4200.0, "logs": 1100.0, "metrics": 60.0}
_COLOURS = 256


def estate() -> EstateView:
    """Return the view of the estate: a loss, a task that FAILED, one paused, one late, drift, dead workers, an apply."""
    view = shop(AT)
    assert view.look
    assert view.survey
    past = {flow.flow: flow_traffic(AT, _RATES[flow.flow.partition(":")[0]]) for flow in view.look.status.flows}
    return replace(view, survey=replace(view.survey, traffic=TrafficHistory(past)))


def take_pictures(folder: Path) -> None:
    """Write the pictures; ImportError without playwright."""
    from playwright.sync_api import sync_playwright

    view = estate()
    with serving(lambda: view, clock=lambda: AT + 5) as url, sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, (width, height, theme) in PICTURES.items():
            page = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
            page.clock.set_fixed_time(AT + 5)
            page.goto(url)
            picture = with_palette(page.screenshot())
            assert len(picture) < MOST_BYTES, f"{name} has {len(picture)} bytes"
            (folder / f"{name}.png").write_bytes(picture)
            page.close()
        chromium.close()


def with_palette(picture: bytes) -> bytes:
    """Return a PNG of eight bits per channel without transparency as one of at most 256 colours."""
    width, height, rows = _read_rows(picture)
    counts = Counter(row[at : at + 3] for row in rows for at in range(0, len(row), 3))
    palette = [colour for colour, _ in counts.most_common(_COLOURS)]
    place = {colour: bytes([number]) for number, colour in enumerate(palette)}
    for colour in counts.keys() - place.keys():
        nearest = min(palette, key=lambda known: sum((a - b) ** 2 for a, b in zip(known, colour, strict=True)))
        place[colour] = place[nearest]
    pixels = (b"\0" + b"".join(place[row[at : at + 3]] for at in range(0, len(row), 3)) for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [
        (b"IHDR", header),
        (b"PLTE", b"".join(palette)),
        (b"IDAT", zlib.compress(b"".join(pixels), 9)),
        (b"IEND", b""),
    ]
    return picture[:8] + b"".join(_part(kind, content) for kind, content in parts)


def _part(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _read_rows(picture: bytes) -> tuple[int, int, list[bytes]]:
    """Return width, height and rows of three bytes per pixel; the filters are those of the specification of PNG."""
    at, content, header = 8, b"", (0, 0, 0, 0)
    while at < len(picture):
        size, kind = struct.unpack(">I4s", picture[at : at + 8])
        part = picture[at + 8 : at + 8 + size]
        header = struct.unpack(">IIBB", part[:10]) if kind == b"IHDR" else header
        content += part if kind == b"IDAT" else b""
        at += size + 12
    width, height, depth, colour_type = header
    assert (depth, colour_type) in {(8, 2), (8, 6)}
    step = 3 if colour_type == 2 else 4
    data, above, rows = zlib.decompress(content), bytearray(width * step), list[bytes]()
    for number in range(height):
        start = number * (width * step + 1)
        row = bytearray(data[start + 1 : start + 1 + width * step])
        _unfilter(data[start], row, above, step)
        above = row
        rows.append(bytes(row) if step == 3 else b"".join(row[at : at + 3] for at in range(0, len(row), 4)))
    return width, height, rows


def _unfilter(method: int, row: bytearray, above: bytearray, step: int) -> None:
    for at, value in enumerate(row):
        left, corner = (row[at - step], above[at - step]) if at >= step else (0, 0)
        up = above[at]
        guess = left + up - corner
        nearest = min((abs(guess - side), place, side) for place, side in enumerate((left, up, corner)))[2]
        row[at] = (value + (0, left, up, (left + up) // 2, nearest)[method]) & 255


if __name__ == "__main__":
    if CHROMIUM is None:
        sys.exit("no Chromium on this machine: apt-get install chromium")
    FOLDER.mkdir(exist_ok=True)
    take_pictures(FOLDER)
