"""What a process that runs on and on keeps of answers that were refused: nothing, before Python ever looks for garbage."""

from __future__ import annotations

import gc
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from mm2mgr import bounded_http
from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations.estate_view import EstateLook
from mm2mgr.operations.serve import EstateWatch
from mm2mgr.operations.serve_parts import ServeOrder
from mm2mgr.operations.workspace import Workspace, repeat
from mm2mgr.samples.follow import Schedule, _ticks
from tests.cli.command import until
from tests.serve.estate import SURVEY, flow_status, look_of
from tests.serve.test_watch import TREE

from .answers import OK, TOO_LARGE, Pieces, body, once, speaking
from .test_servers import CLIENTS

MIB = 1 << 20
PIECE = b" " * 32_768


def by_and_by(over: threading.Event, *, then_silent: bool = False) -> Iterator[bytes]:
    yield OK + b"Content-Length: 9000000\r\n\r\n"
    for _ in range(MIB // len(PIECE)):
        yield PIECE
    if then_silent:
        over.wait(10)


KINDS: dict[str, Pieces] = {
    "endless": TOO_LARGE["endless"],
    "broken off": by_and_by,
    "late": lambda over: by_and_by(over, then_silent=True),
    "no JSON": body("x" * MIB),
    "not closed": body("[" * MIB),
    "other JSON": body('["' + "x" * MIB + '"]'),
    "a refusal": once(b"HTTP/1.1 500 Oh\r\nContent-Length: %d\r\n\r\n" % MIB, b"x" * MIB),
}


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("client", CLIENTS)
def test_nothing_of_a_refused_answer_is_kept(client: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "LIMIT_BYTES", 2 * MIB)
    sizes = []
    tracemalloc.start()
    try:
        with speaking(KINDS[kind]) as url:
            for _ in range(3):
                with pytest.raises(Mm2mgrError):
                    CLIENTS[client](url, 0.3)
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[2] - sizes[0] < MIB, f"{sizes}: two answers of at least 1 MiB"
    bodies = [one for one in gc.get_objects() if isinstance(one, bounded_http.Body)]
    assert [len(one._found) for one in bodies if one._found] == []


# --- garbage ----------------------------------------------------------------------------------------------------------


class Knot:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def knots() -> Callable[[], None]:
    """Make one more knot; none but the newest may be left of those before."""
    made: list[weakref.ref[Knot]] = []

    def make() -> None:
        assert [one() for one in made] == [None] * len(made)
        made.append(weakref.ref(Knot()))

    return make


@pytest.mark.usefixtures("no_collection")
def test_a_command_that_watches_leaves_no_garbage_from_look_to_look(knots: Callable[[], None]) -> None:
    assert list(islice(repeat(knots, 0.0), 4)) == [None] * 4


@pytest.mark.usefixtures("no_collection")
def test_sampling_leaves_no_garbage_from_round_to_round(knots: Callable[[], None]) -> None:
    for number in islice(_ticks(Schedule(0.001, None), threading.Event()), 4):
        assert number > 0
        knots()


@pytest.mark.usefixtures("no_collection")
def test_serve_leaves_no_garbage_from_look_to_look(knots: Callable[[], None], tmp_path: Path) -> None:
    (tmp_path / "tree.yaml").write_text(TREE)

    def look(*_: object) -> EstateLook:
        knots()
        return look_of([flow_status("orders:a->b", "a->b")])

    watch = EstateWatch(Workspace((tmp_path,)), ServeOrder(0.001, 1000), look=look, survey=lambda *_: SURVEY)
    watch.start()
    until(lambda: watch.view.looks + watch.view.failed_looks > 3, "it has looked four times")
    assert watch.close(10)
    assert watch.view.failed_looks == 0, watch.view.error
