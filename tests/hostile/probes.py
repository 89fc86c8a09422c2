"""Hostile probes: what a probe prepares and runs is data, what must hold of each run is one oracle.

A defect is: exit code 70 or a traceback, a run without end, a secret or a terminal's control character in what is printed or
stored, a write to Connect that the command does not make, a file outside of its place.
"""

from __future__ import annotations

import copy
import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from mm2mgr import secrets
from mm2mgr.cli import main
from mm2mgr.json_values import to_json
from mm2mgr.live.kafka_state import RunningKafka, WantedLogs
from mm2mgr.live.reach import KafkaReach
from mm2mgr.partitions import Offsets
from mm2mgr.plan.history import HistoryEntry
from tests.cli.command import Command
from tests.plan.site import Site
from tests.render.test_templates import COMMON

from .test_templates import BOMBS, ESCAPES

CPU_SECONDS, HANG_SECONDS = 12.0, 40
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
CANARY = "cAn4ry-s3cr3t"


@dataclass
class Ground:
    """Two fake Connect clusters with a small estate that was applied, reset before each probe."""

    site: Site
    mm2mgr: Command
    connectors: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    """What the topic of the history holds on each Kafka cluster."""

    def read_kafka(self, reach: KafkaReach, wanted: WantedLogs) -> RunningKafka:
        """Answer as `live.kafka_state.read_kafka` does, at once: five records a partition, and on the targets what was mirrored."""
        topics = (
            {"orders": 1, "logs.web": 1}
            if reach.access.alias == "a"
            else {"a.orders": 1, "a.logs.web": 1, "heartbeats": 1}
        )
        return RunningKafka(topics, dict.fromkeys(wanted.ends or wanted(topics), Offsets(0, 5)))

    def settle(self) -> None:
        self.site.declare()
        self.mm2mgr("apply", "--yes")
        self.connectors = {name: copy.deepcopy(fake.connectors) for name, fake in self.site.fakes.items()}

    def reset(self) -> None:
        secrets.forget()
        self.texts.clear()
        for name, fake in self.site.fakes.items():
            fake.connectors = copy.deepcopy(self.connectors[name])
            fake.__dict__.pop("handle", None)
            fake.faults.clear()
            fake.requests.clear()
        for path in self.mm2mgr.tree.iterdir():
            path.unlink()
        self.site.declare()

    @property
    def tree_file(self) -> Path:
        return self.mm2mgr.tree / "x.yaml"

    def source(self) -> dict[str, str]:
        return self.site.east.connectors["mm2.a.east.source.orders"].config  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Probe:
    """What is prepared, and the command that then runs; `writes` where it may change connectors, `files` what it may write."""

    kind: str
    name: str
    prepare: Callable[[Ground], object]
    command: tuple[str, ...]
    writes: bool = False
    files: tuple[str, ...] = ()


@contextmanager
def _bounded() -> Iterator[None]:
    def late(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(HANG_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def defects(ground: Ground, probe: Probe) -> list[str]:
    """Run a probe and return what is wrong with how it went."""
    ground.reset()
    probe.prepare(ground)
    root = ground.mm2mgr.folder.parent
    before = _files(root)
    for fake in ground.site.fakes.values():
        fake.requests.clear()
    code, out, err, seconds = run(ground.mm2mgr, probe.command)
    after = _files(root)
    written = [path for path in after if after[path] != before.get(path)]
    stored = "".join(Path(path).read_bytes().decode("latin-1") for path in written if Path(path).is_file())
    text = out + err
    wrong = []
    if code in (70, None) or "Traceback" in text or "internal error" in text:
        wrong.append(f"ends with {code}: {text[-300:]!r}")
    if seconds > CPU_SECONDS:
        wrong.append(f"takes {seconds:.0f} s")
    if CANARY in text or CANARY in stored:
        wrong.append(
            f"shows the secret: {next(line for line in (text + stored).splitlines() if CANARY in line)[:300]!r}"
        )
    if found := _CONTROLS.search(text):
        wrong.append(f"prints {found[0]!r}: {text[max(0, found.start() - 60) : found.end() + 20]!r}")
    changes = [request for fake in ground.site.fakes.values() for request in fake.writes]
    if changes and not probe.writes:
        wrong.append(f"writes {changes[0].method} {changes[0].path}")
    places = (str(root / "cache"), str(root / "state"), *(str(ground.mm2mgr.folder / name) for name in probe.files))
    if strange := [
        path for path in written + [path for path in before if path not in after] if not path.startswith(places)
    ]:
        wrong.append(f"changes {strange[:3]}")
    return wrong


def run(mm2mgr: Command, command: tuple[str, ...]) -> tuple[int | None, str, str, float]:
    """Run a command in this process; None as exit code where it did not end or raised."""
    mm2mgr.monkeypatch.setattr(sys, "argv", ["mm2mgr", *command])
    mm2mgr.capsys.readouterr()
    begun, code, raised = time.process_time(), None, ""
    try:
        with _bounded():
            main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException as error:
        raised = f"Traceback: {type(error).__name__} {error}"
    out, err = mm2mgr.capsys.readouterr()
    return code, out, err + raised, time.process_time() - begun


def _files(root: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_size)
        for path in root.rglob("*")
        if not path.is_dir() or path.is_symlink()
    }


# --- hostile values ---------------------------------------------------------------------------------------------------

TYPES: Mapping[str, object] = {
    "null": None,
    "true": True,
    "zero": 0,
    "negative": -1,
    "huge": 10**400,
    "fraction": 1.5,
    "empty": "",
    "word": "x",
    "list": [],
    "lists": [[["x"], {}]],
    "object": {},
    "objects": {"a": {"b": [None]}},
    "surrogate": "\ud800",
    "nul": "a\0b",
    "escape": "\x1b[2J\x1b]0;x\x07",
    "turned": "\u202edesrever",
    "long": "t" * 10_000,
}
NAMES = {
    "nul": "a\\0b",
    "escape": "a\\e[31mb",
    "bell": "a\\u0007",
    "turned": "a\\u202eb",
    "climbs": "../../../tmp/x",
    "absolute": "/etc/passwd",
    "quotes": "a'\\\"b",
    "newline": "a\\nb: c",
    "blank": " ",
    "long": "n" * 10_000,
    "brackets": "[bold]x[/bold]",
    "template": "{{ 7 * 7 }}",
    "placeholder": "${env:HOME}",
    "percent": "%2e%2e%2f%00",
    "html": "<script>alert(1)</script>",
    "dots": "..",
    "star": "*",
    "slash": "a/b",
    "lonely": "\\ud800",
}


def _answers() -> Iterator[Probe]:
    """What Connect answers, per endpoint: wrong types, wrong statuses, pages, redirects, nothing."""
    texts: dict[str, tuple[int, object]] = {
        f"json {name}": (200, json.dumps(value).encode()) for name, value in TYPES.items()
    }
    texts |= {
        "html": (200, b"<html><body>\x1b[2Jlogin</body></html>"),
        "nothing": (204, b""),
        "redirect": (302, b""),
        "not json": (200, b"{"),
        "latin": (200, b"\xff\xfe"),
        "deep": (200, b"[" * 50_000),
        "nan": (200, b"[NaN, Infinity]"),
        "teapot": (418, b"\x1b]8;;http://x\x07"),
        "error": (500, json.dumps({"error_code": [], "message": {"x": "\x1b[1m"}}).encode()),
    }
    paths = (
        "/",
        "/connectors",
        "/connectors/mm2.a.east.source.orders",
        "/connector-plugins",
        "/connectors/mm2.a.east.source.orders/offsets",
    )
    commands = (("plan",), ("status",), ("plan", "-o", "json"))
    for number, path in enumerate(paths):
        for at, (name, (status, body)) in enumerate(texts.items()):
            command = commands[(number + at) % len(commands)]
            yield Probe("answers of Connect", f"{path} {name} {command}", _answering(path, status, body), command)


def _answering(path: str, status: int, body: object) -> Callable[[Ground], None]:
    def prepare(ground: Ground) -> None:
        headers = {"Location": "http://127.0.0.1:1/"} if status == 302 else {}
        handle = type(ground.site.east).handle

        def answer(method: str, asked: str, query: str, data: bytes, sent: Mapping[str, str]) -> Any:
            if method == "GET" and asked == path:
                return (status, {"Content-Type": "application/json", **headers}, body), 0.0
            return handle(ground.site.east, method, asked, query, data, sent)

        ground.site.east.handle = answer  # type: ignore[method-assign]

    return prepare


def _fields() -> Iterator[Probe]:
    """Each field of what Connect tells of a connector, with a value of each type."""
    for place in (
        ("info",),
        ("info", "config"),
        ("info", "config", "connector.class"),
        ("info", "config", "topics"),
        ("info", "tasks"),
        ("info", "type"),
        ("status",),
        ("status", "connector"),
        ("status", "connector", "state"),
        ("status", "tasks"),
        ("status", "tasks", 0),
        ("status", "tasks", 0, "state"),
        ("status", "tasks", 0, "id"),
        ("status", "tasks", 0, "worker_id"),
        ("status", "tasks", 0, "trace"),
        ("status", "name"),
    ):
        for at, (name, value) in enumerate(TYPES.items()):
            command = (("plan",), ("status",), ("describe", "orders:a->east"))[at % 3]
            yield Probe(
                "fields of Connect", f"{'.'.join(map(str, place))} {name} {command}", _altering(place, value), command
            )


def _altering(place: tuple[Any, ...], value: object) -> Callable[[Ground], None]:
    def prepare(ground: Ground) -> None:
        handle = type(ground.site.east).handle

        def answer(method: str, asked: str, query: str, data: bytes, sent: Mapping[str, str]) -> Any:
            found = handle(ground.site.east, method, asked, query, data, sent)
            if method == "GET" and asked == "/connectors" and found[0][0] == 200:
                document = json.loads(found[0][2])
                spot: Any = document.get("mm2.a.east.source.orders") if isinstance(document, dict) else None
                for name in place[:-1]:
                    spot = (
                        spot[name]
                        if isinstance(spot, (dict, list))
                        and (not isinstance(name, int) or len(spot) > name)
                        and (isinstance(name, int) or name in spot)
                        else None
                    )
                if isinstance(spot, (dict, list)) and not (isinstance(spot, list) and not spot):
                    spot[place[-1]] = value
                return (200, found[0][1], json.dumps(document).encode()), 0.0
            return found

        ground.site.east.handle = answer  # type: ignore[method-assign]

    return prepare


def _journals() -> Iterator[Probe]:
    """Texts in the config of a connector of ours that are only notes: of every type, and forged."""
    move = {"giver": ["west", "mm2.a.west.source.logs"], "carried": True, "topics": ["orders"], "pair": ["a", "west"]}
    whole = {"then": "RUNNING", "needs": ["orders"], "move": move, "gives": ["west", "mm2.a.west.source.logs"]}
    texts = {name: json.dumps(value) for name, value in TYPES.items()} | {
        "deep": "[" * 50_000,
        "forged": json.dumps(whole),
    }
    for part in whole:
        texts |= {f"{part} {name}": json.dumps({**whole, part: value}) for name, value in TYPES.items()}
    for part in move:
        texts |= {
            f"move.{part} {name}": json.dumps({**whole, "move": {**move, part: value}}) for name, value in TYPES.items()
        }
    for at, (name, text) in enumerate(texts.items()):
        yield Probe(
            "journal",
            name,
            lambda ground, text=text: ground.source().update({"mm2mgr.journal": text}),
            ("plan",) if at % 4 else ("status",),
        )
    for key in ("mm2mgr.owner", "mm2mgr.flow", "tasks.max", "connector.class", "source.cluster.alias", "topics"):
        for name in ("empty", "word", "nul", "escape", "turned", "long", "surrogate"):
            yield Probe(
                "keys of a live config",
                f"{key} {name}",
                lambda ground, key=key, value=TYPES[name]: ground.source().update({key: value}),
                ("plan",),
            )


def _names() -> Iterator[Probe]:
    """Names in a tree, in each place that has one, through the commands that show it."""

    def tree(  # noqa: PLR0917  one per place
        flow: str = "orders",
        alias: str = "a",
        topic: str = "orders",
        connect: str = "east",
        owner: str = "team",
        more: str = "",
    ) -> Callable[[Ground], None]:
        def prepare(ground: Ground) -> None:
            urls = ground.site.urls
            text = (
                f'owner: "{owner}"\nclusters:\n  "{alias}": {{bootstrap_servers: ["a:9092"], cluster_id: a}}\n  east: {{bootstrap_servers: ["east:9092"], cluster_id: east}}\n'
                f'connect:\n  "{connect}": {{url: "{urls["east"]}", kafka: east, history: false}}\n'
                f'flows:\n  "{flow}": {{sources: ["{alias}"], targets: [east], topics: {{include: ["{topic}"]}}{more}}}\n'
            )
            ground.tree_file.write_text(text, encoding="utf-8")

        return prepare

    commands = (("render",), ("lint",), ("plan",), ("plan", "-o", "json"), ("render", "-o", "json"))
    number = 0
    for name, text in NAMES.items():
        places = {
            "flow": tree(flow=text),
            "alias": tree(alias=text),
            "topic": tree(topic=text),
            "connect": tree(connect=text),
            "owner": tree(owner=text),
            "key": tree(more=f', source_connector: {{"{text}": "x"}}'),
            "value": tree(more=f', source_connector: {{"x.y": "{text}"}}'),
        }
        for place, prepare in places.items():
            number += 1
            command = commands[number % len(commands)]
            yield Probe("names", f"{place} {name} {command}", prepare, command)
        yield Probe(
            "names",
            f"argument {name}",
            lambda ground: None,
            ("describe", json.loads(f'"{text}"'.replace("\\e", "\\u001b").replace("\\0", "\\u0000"))),
        )


def _bombs() -> Iterator[Probe]:
    """Files that are small and mean much."""
    texts = {
        "anchors": "a: &a [x, x]\n"
        + "".join(f"a{n}: &a{n} [*a{n - 1 if n > 1 else ''}, *a{n - 1 if n > 1 else ''}]\n" for n in range(1, 40)),
        "deep list": "[" * 60_000,
        "deep map": "{a: " * 60_000,
        "dashes": "- " * 60_000,
        "indented": "".join(" " * n + "a:\n" for n in range(2_000)),
        "number": "flows: {f: {tasks: {max: " + "9" * 100_000 + "}}}\n",
        "sexagesimal": "flows: {f: {tasks: {max: " + ":".join(["59"] * 20_000) + "}}}\n",
        "float": "flows: {f: {refresh_interval: 1e999999s}}\n",
        "tag": "flows: !!python/object/apply:os.mkdir [ran]\n",
        "tag of a name": "flows: !!python/name:os.system x\n",
        "endless key": "? " + "k" * 200_000 + "\n: v\n",
        "documents": "---\n" * 50_000,
        "directives": "%YAML 9.9\n" * 10_000,
        "cycle": "flows: &f {g: *f}\n",
        "binary": "flows: !!binary " + "A" * 100_000 + "\n",
        "null bytes": "flows: \0\n",
        "bom in the middle": "flows: {}\n\ufeffx: 1\n",
        "merge of itself": "a: &a {<<: *a}\n",
        "timestamp": "flows: 2026-99-99T99:99:99Z\n",
        "regex nested": 'flows: {orders: {sources: [a], targets: [east], topics: {include: ["(((a+)+)+)+$"]}}}\n',
        "regex back": 'flows: {orders: {sources: [a], targets: [east], topics: {include: ["(a*)*\\\\1{100}"]}}}\n',
        "regex counts": 'flows: {orders: {sources: [a], targets: [east], topics: {include: ["((a{1,1000}){1,1000}){1,1000}"]}}}\n',
        "regex parens": 'flows: {orders: {sources: [a], targets: [east], topics: {include: ["'
        + "(" * 5_000
        + '"]}}}\n',
        "regex or": 'flows: {orders: {sources: [a], targets: [east], topics: {include: ["' + "a|" * 50_000 + '"]}}}\n',
        "regex class": 'flows: {orders: {sources: [a], targets: [east], topics: {include: ["[[a-z]&&[^b" ]}}}\n',
    }
    for name, text in texts.items():

        def prepare(ground: Ground, text: str = text, of_a_flow: bool = name.startswith("regex")) -> None:
            tree = ground.tree_file.read_text(encoding="utf-8").partition("flows:")[0] if of_a_flow else ""
            ground.tree_file.write_text(tree + text, encoding="utf-8")
            for file in ("c.yaml", "c.json", "c.properties"):
                (ground.mm2mgr.folder / file).write_text(text, encoding="utf-8")

        for command in (("render",), ("lint",), ("lint", "c.yaml"), ("lint", "c.json"), ("lint", "c.properties")):
            yield Probe("bombs", f"{name} {command}", prepare, command)


def _plan_files() -> Iterator[Probe]:
    """Plan files that somebody altered, at each place of the document, and what is none."""
    places: list[tuple[Any, ...]] = [
        ("mm2mgr-plan",),
        ("plan",),
        ("clusters",),
        ("templates",),
        ("only",),
        ("owner",),
        ("plan", "clusters"),
    ]
    places += [
        ("plan", "clusters", 0, key)
        for key in ("connect", "error", "changes", "notes", "warnings", "untouched", "claims")
    ]
    places += [
        ("plan", "clusters", 0, "changes", 0, key)
        for key in ("connector", "action", "keys", "reason", "flows", "seen", "stages", "steps", "blocked", "hint")
    ]
    places += [
        ("plan", key) for key in ("quotas", "price", "prune", "allow", "deletes", "unread", "options", "wish", "cost")
    ]
    for place in places:
        for name in ("null", "true", "huge", "word", "lists", "objects", "escape", "nul", "surrogate"):
            yield Probe(
                "plan files",
                f"{'.'.join(map(str, place))} {name}",
                _plan_with(place, TYPES[name]),
                ("apply", "p.json", "--yes"),
                writes=True,
            )
    for name, data in {
        "empty": b"",
        "deep": b"[" * 100_000,
        "latin": b"\xff",
        "list": b"[]",
        "large": b'{"mm2mgr-plan": ' + b" " * 200_000 + b"1}",
    }.items():
        yield Probe(
            "plan files",
            name,
            lambda ground, data=data: (ground.mm2mgr.folder / "p.json").write_bytes(data),
            ("apply", "p.json", "--yes"),
        )


def _plan_with(place: tuple[Any, ...], value: object) -> Callable[[Ground], None]:
    def prepare(ground: Ground) -> None:
        path = ground.mm2mgr.folder / "p.json"
        ground.source().update({"tasks.max": "3"})
        path.unlink(missing_ok=True)
        run(ground.mm2mgr, ("plan", "--out", "p.json"))
        document = json.loads(path.read_text(encoding="utf-8"))
        spot: Any = document
        for name in place[:-1]:
            spot = spot[name]
        spot[place[-1]] = value
        path.write_text(json.dumps(document), encoding="utf-8")

    return prepare


def _secrets() -> Iterator[Probe]:
    """A secret of each shape, in the tree and in what runs, through what prints."""
    from mm2mgr.secret_shapes import KEYS

    keys = [example for shape in KEYS for example in shape.examples if re.fullmatch(r"[\w.-]+", example)]
    values = {
        "url": f"http://app:{CANARY}@registry:8081",
        "url with a slash": f"http://app:x/{CANARY}@registry:8081",
        "slack": f"https://hooks.slack.com/services/T0/B0/{CANARY}",
        "teams": f"https://x.webhook.office.com/webhookb2/1/{CANARY}",
        "discord": f"https://discord.com/api/webhooks/1/{CANARY}",
        "hook": f"https://chat.example/hooks/1234567890{CANARY}",
        "azure": f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={CANARY}==",
        "signed": f"https://x.blob.example/a?sv=1&sig={CANARY}",
        "jaas": f'org.x.PlainLoginModule required username="u" password="{CANARY}";',
        "bearer": f"Bearer {CANARY}123",
        "pem": f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----",
        "assigned": f"a=b,password={CANARY}",
    }
    pairs = [(key, CANARY) for key in keys] + [("x.setting", value) for value in values.values()]
    commands = (
        ("plan", "--full"),
        ("plan", "-o", "json"),
        ("plan", "-o", "markdown"),
        ("render",),
        ("render", "-o", "json"),
        ("lint", "-o", "sarif"),
        ("describe", "orders:a->east"),
        ("status", "-o", "json"),
    )
    for number, (key, value) in enumerate(pairs):

        def in_tree(ground: Ground, key: str = key, value: str = value) -> None:
            more = f"source_connector: {{{json.dumps(key)}: {json.dumps(value)}}}, topics: {{include: [orders]}}"
            text = ground.tree_file.read_text(encoding="utf-8")
            ground.tree_file.write_text(text.replace("topics: {include: [orders]}", more), encoding="utf-8")

        def live(ground: Ground, key: str = key, value: str = value) -> None:
            ground.source().update({key: value})

        for at, prepare in enumerate((in_tree, live)):
            command = commands[(number + 3 * at) % len(commands)]
            yield Probe("secrets", f"{key} {value[:30]!r} {'live' if at else 'tree'} {command}", prepare, command)


def _event_files() -> Iterator[Probe]:
    def at(make: Callable[[Path], object]) -> Callable[[Ground], None]:
        def prepare(ground: Ground) -> None:
            path = ground.mm2mgr.folder / "e.jsonl"
            if path.is_dir():
                path.rmdir()
            path.unlink(missing_ok=True)
            make(path)

        return prepare

    import os

    files = {
        "folder": lambda path: path.mkdir(),
        "pipe": os.mkfifo,
        "tree": lambda path: path.write_text("owner: x\n"),
        "dangling": lambda path: path.symlink_to("/nowhere/x"),
        "link to a tree": lambda path: path.symlink_to(path.parent / "clusters" / "x.yaml"),
        "binary": lambda path: path.write_bytes(b"\xff\0"),
        "half a line": lambda path: path.write_bytes(b'{"event"'),
        "json": lambda path: path.write_text("[1, 2]\n"),
    }
    for name, make in files.items():
        yield Probe(
            "--events",
            name,
            at(make),
            ("apply", "--yes", "--events", "e.jsonl"),
            writes=True,
            files=("e.jsonl",) if name == "half a line" else (),
        )
    for name in ("/dev/full", "clusters", "clusters/x.yaml", "/nowhere/x", "", "e/../clusters/x.yaml", "a\x1b[2J"):
        yield Probe(
            "--events",
            name,
            lambda ground: None,
            ("apply", "--yes", "--events", name),
            writes=True,
            files=("a\x1b[2J",),
        )


def _topic_texts() -> Iterator[Probe]:
    """Records of the topic that keeps history and claims, which anybody with the right may have written."""
    entry = to_json(
        HistoryEntry(
            "1",
            "2026-01-01T00:00:00Z",
            "ann",
            "c0ffee",
            "apply",
            "team",
            "east",
            "mm2.a.east.source.orders",
            ("orders:a->east",),
        )
    )
    entry |= {
        "keys": [{"key": "topics", "before": "x", "after": "y"}],
        "state": {"before": "RUNNING", "after": "STOPPED"},
    }
    claim: dict[str, Any] = {
        "owner": "other",
        "connect": "east",
        "connector": "mm2.a.east.source.orders",
        "pair": ["a", "east"],
        "urls": ["http://x"],
        "who": "bob",
        "commit": "",
        "when": "2026",
    }
    commands = (("history",), ("plan",), ("history", "-o", "json"), ("describe", "orders:a->east"))
    number = 0
    for key, base in (("entry/1", entry), ("claim/east/mm2.a.east.source.orders/other", claim)):
        texts = {name: json.dumps(value) for name, value in TYPES.items()} | {"deep": "[" * 50_000, "not json": "{"}
        for part in base:
            texts |= {f"{part} {name}": json.dumps({**base, part: value}) for name, value in TYPES.items()}
        for name, text in texts.items():
            number += 1

            def prepare(ground: Ground, key: str = key, text: str = text) -> None:
                ground.tree_file.write_text(ground.tree_file.read_text().replace("history: false", "history: true"))
                ground.texts |= {
                    "entry/0": json.dumps(entry),
                    key: text,
                    "config/team/east/mm2.a.east.source.orders": text,
                }

            command = commands[number % 4]
            yield Probe("topic of history and claims", f"{key.partition('/')[0]} {name} {command}", prepare, command)


def _templates() -> Iterator[Probe]:
    """Templates of somebody else, in the folder beside the tree."""
    for name, text in {
        **ESCAPES,
        **BOMBS,
        "secret": "x.password={{ 1 / 0 }}",
        "orders": "x.y=\x1b[2J",
        "turned": "x.y=\u202eabc",
        "name": "name=../../x\x1b[1m",
    }.items():

        def prepare(ground: Ground, text: str = text) -> None:
            folder = ground.mm2mgr.folder / "own"
            folder.mkdir(exist_ok=True)
            (folder / "source.properties.j2").write_text(COMMON + text, encoding="utf-8")

        for command in (("--templates", "own", "render"), ("--templates", "own", "plan")):
            yield Probe("templates", f"{name} {command[-1]}", prepare, command)


def every_probe() -> list[Probe]:
    makers = (
        _answers,
        _fields,
        _journals,
        _names,
        _bombs,
        _plan_files,
        _secrets,
        _event_files,
        _topic_texts,
        _templates,
    )
    return [probe for maker in makers for probe in maker()]
