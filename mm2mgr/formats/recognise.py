"""Recognises a file by its content and reads its connectors: JSON, properties, YAML, dumps of Connect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from mm2mgr.errors import Problem, SpecError
from mm2mgr.files import Unreadable, read_bytes
from mm2mgr.formats import documents, mm2_properties, properties, strimzi
from mm2mgr.formats.connectors import FoundConnector, FoundWorkers
from mm2mgr.formats.documents import Node
from mm2mgr.formats.properties import LINE_END, Entry
from mm2mgr.formats.templates import is_line_of_template
from mm2mgr.spec.places import MOST_BYTES, Place, read_yaml

TREE_KEYS = frozenset({"owner", "defaults", "clusters", "connect", "links", "flows", "sizing", "brokers"})
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_YAML = re.compile(r"\A(\s*#.*\n|\s*\n)*(---|apiVersion\s*:\s|kind\s*:\s)")
_PAIR = re.compile(r"[^\s.>-][^\s>]*->[^\s]+\.")


@dataclass(frozen=True)
class ForeignFile:
    """A file and its connectors, of other plugins too; `entries` are those of mm2.properties, `text` has the comments.

    `within` are files in its texts: of a ConfigMap, a Secret, or the `configs` of a compose file; their lines are those
    of this file.
    """

    path: str
    syntax: Literal["properties", "json", "yaml", "dedicated"]
    text: str = field(repr=False)  # may hold secrets
    connectors: tuple[FoundConnector, ...]
    entries: tuple[Entry, ...] = field(default=(), repr=False)
    within: tuple[ForeignFile, ...] = field(default=(), repr=False)


def read_file(path: Path, content: bytes | None = None) -> ForeignFile:
    """Read a file, or its future content; raise SpecError for what cannot be read or is of no known kind."""
    file, text = str(path), read_text(path, content)
    syntax = syntax_of(file, text)
    if syntax == "json":
        return _read_documents(file, "json", [documents.parse(_utf8(file, text), file)], "")
    if syntax == "yaml":
        return _yaml(file, text)
    if text.startswith("ï»¿"):
        raise wrong(
            file, "starts with a byte order mark, which Java takes for a part of the first key: save it without"
        )
    return _properties(file, text)


def syntax_of(file: str, text: str) -> Literal["json", "yaml", "properties"]:
    """Return the syntax of a file by its first characters and its name; `text` is its bytes as ISO-8859-1."""
    if text.lstrip("ï»¿ \t\r\n")[:1] in ("{", "["):
        return "json"
    return "yaml" if file.lower().endswith((".yaml", ".yml")) or _YAML.match(text) else "properties"


def wrong(file: str, message: str, line: int = 0) -> SpecError:
    """Return an error about a file as a whole, or about one of its lines."""
    return SpecError([Problem(Place(file, line, 1) if line else file, message)])


def read_text(path: Path, content: bytes | None = None) -> str:
    """Return a file as Java reads properties, byte for character (ISO-8859-1); JSON and YAML are decoded again."""
    file = str(path)
    try:
        if path.is_dir():
            raise wrong(file, "is a folder: name the files in it")
        data = read_bytes(path, MOST_BYTES) if content is None else content
    except Unreadable as error:
        raise wrong(file, str(error)) from error
    if data.startswith(_UTF16):
        raise wrong(file, "is UTF-16 text, which neither Kafka nor Connect reads: save it as UTF-8")
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise wrong(file, "holds a NUL byte, so it is no text: is it compressed, or UTF-16?", line)
    if not data.strip():
        raise wrong(file, "is empty")
    return data.decode("iso-8859-1")


def _utf8(file: str, text: str) -> str:
    data = text.encode("iso-8859-1")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise wrong(file, f"is not UTF-8 text, which JSON and YAML have to be (byte {error.start})", line) from error


def _properties(file: str, text: str) -> ForeignFile:
    entries = tuple(entry for entry in properties.read(text, file) if not is_line_of_template(entry.key))
    lines = properties.last(entries)
    dedicated = mm2_properties.Dedicated(entries)
    if _is_dedicated(dedicated, lines):
        return ForeignFile(file, "dedicated", text, tuple(mm2_properties.connectors(dedicated)), entries)
    config = {key: properties.meant_value(entry) for key, entry in lines.items()}
    class_name = config.get("connector.class", "")
    if not class_name:
        raise wrong(file, _not_a_connector(config))
    name, line = config.get("name", "").strip(), lines["connector.class"].line
    return ForeignFile(file, "properties", text, (FoundConnector(name, class_name, config, lines, line, entries),))


def _is_dedicated(file: mm2_properties.Dedicated, keys: Iterable[str]) -> bool:
    """Tell whether a file is for the driver: a connector's may hold stray lines of it, but no cluster's address."""
    if "connector.class" in keys:
        return any(f"{alias}.bootstrap.servers" in keys for alias in file.clusters)
    return any(key == "clusters" or _PAIR.match(key) for key in keys)


def _why_none(root: Node) -> str:
    """Return what a document without a connector is, and how to get the one that was meant; "" if that is unknown."""
    if root.get("error_code"):
        return f"it is an error that Connect answered ({root.word('error_code')})"
    if root.get("tasks") and root.node_at("connector", "state"):
        return "it is a status; the configs are at GET /connectors?expand=info"
    if root.items and all(item.kind == "text" for item in root.items):
        return "it lists names only; the configs are at GET /connectors?expand=info"
    kind, spec = root.word("kind"), root.get("spec") or root
    if kind == "KafkaMirrorMaker2":
        return strimzi.why_no_mirror(spec)
    if kind == "KafkaConnector":
        return "spec.class is missing: write the connector's class there"
    return f"a {kind} has none; give a KafkaMirrorMaker2 or KafkaConnector" if kind and root.get("apiVersion") else ""


def _not_a_connector(values: Mapping[str, str]) -> str:
    if any(key.startswith("<") for key in values):
        return "is HTML or XML, perhaps the page of a proxy: get the connector's JSON from Connect itself"
    if "broker.id" in values or "process.roles" in values:
        return "is the properties of a broker: give a connector's config or an mm2.properties"
    if values.get("config") == "" or values.get("spec") == "":
        return "looks like YAML: give it a name that ends in .yaml"
    if "bootstrap.servers" in values or "group.id" in values:
        return "has no connector.class: it looks like the properties of Connect workers, which --worker takes"
    return "is neither a connector's config (no connector.class) nor an mm2.properties (no clusters)"


def _yaml(file: str, text: str) -> ForeignFile:
    read = read_yaml(Path(file), text.encode("iso-8859-1"))
    for document in read:
        if document.values.keys() <= TREE_KEYS:
            raise wrong(file, "is a part of an mm2mgr tree: name it with -f/--clusters")
    try:
        return _read_documents(
            file,
            "yaml",
            [documents.of_yaml(document, number) for number, document in enumerate(read)],
            _utf8(file, text),
        )
    except RecursionError as error:
        raise wrong(file, "nested too deeply") from error


def _read_documents(file: str, syntax: Literal["json", "yaml"], roots: Sequence[Node], text: str) -> ForeignFile:
    connectors_read: list[FoundConnector] = []
    workers: dict[str, FoundWorkers] = {}
    within = tuple(inner for root in roots for inner in _files_within(file, root, text)) if syntax == "yaml" else ()
    for root in roots:
        if _is_confluents(root):
            connectors_read += _of_confluent(root)
            continue
        of_operator = [node for node in (list(strimzi.resources(root)) or [root]) if strimzi.is_resource(node)]
        for connectors_of, workers_of in map(strimzi.read_resource, of_operator):
            connectors_read += connectors_of
            workers |= workers_of
        if not of_operator:
            connectors_read += documents.connectors(root, Path(file).stem)
    if not connectors_read and not workers and not within:
        raise wrong(
            file,
            f"holds no connector: {next(filter(None, map(_why_none, roots)), 'nothing in it has a connector.class')}",
        )
    connectors = tuple(strimzi.with_workers(connector, workers) for connector in connectors_read)
    return ForeignFile(file, syntax, text, connectors, within=within)


# --- files within a file ----------------------------------------------------------------------------------------------

_MEMBERS = {"ConfigMap": "data", "Secret": "stringData"}
_INNER = re.compile(r"^\s*clusters\s*[=:]|connector\.class|->[^\s=]+\.enabled", re.MULTILINE)
_CONFIGS = (".properties", ".json")
_LITERAL = re.compile(r":\s*\|[+-]?\d?[+-]?\s*(?:#.*)?$")


def _files_within(file: str, root: Node, text: str) -> Iterator[ForeignFile]:
    """Yield the configs that a document holds as text; of other texts it is not known what they are."""
    items = root.get("items") if root.word("kind") == "List" else None
    for resource in items.items if items else (root,):
        if member := _MEMBERS.get(resource.word("kind")):
            texts = [(key, node) for key, _, node in (resource.get(member) or Node("null", 0)).members]
        elif resource.get("services") and (configs := resource.get("configs")):
            texts = [(key, inner) for key, _, config in configs.members if (inner := config.get("content"))]
        else:
            continue
        for key, node in texts:
            if node.kind == "text" and _INNER.search(node.text):
                try:
                    yield _inner(file, node, text)
                except SpecError:
                    if key.endswith(_CONFIGS):
                        raise  # others are scripts and notes that speak of a connector


def _inner(file: str, node: Node, text: str) -> ForeignFile:
    """Read a text within a file, moved down to where it is, so that its lines are those of the file."""
    above = LINE_END.split(text)[node.line - 1] if node.line else ""
    inner = "\n" * (node.line if _LITERAL.search(above) else max(node.line - 1, 0)) + node.text
    if inner.lstrip()[:1] in ("{", "["):
        file_within = _read_documents(file, "json", [documents.parse(inner, file)], "")
        return replace(
            file_within,
            connectors=tuple(
                replace(connector, home=(), lines=_placeless(connector)) for connector in file_within.connectors
            ),
        )
    return _properties(file, inner.encode().decode("iso-8859-1"))


def _placeless(connector: FoundConnector) -> dict[str, Entry]:
    return {key: replace(entry, path=()) for key, entry in connector.lines.items()}


def _is_confluents(root: Node) -> bool:
    """Tell whether a document is a Connector of Confluent's operator, which is written much like Strimzi's."""
    return root.word("kind") == "Connector" and root.word("apiVersion").startswith("platform.confluent.io")


def _of_confluent(root: Node) -> list[FoundConnector]:
    spec = root.get("spec") or Node("object", root.line)
    names = {"configs": "config", "taskMax": "tasksMax"}
    renamed = replace(spec, members=tuple((names.get(key, key), line, node) for key, line, node in spec.members))
    resource = replace(
        root, members=tuple((key, line, renamed if key == "spec" else node) for key, line, node in root.members)
    )
    places = {"connector.class": (*spec.path, "class"), "tasks.max": ()}
    connectors, _ = strimzi.read_resource(resource)
    return [replace(connector, home=(*spec.path, "configs"), places=places) for connector in connectors]
