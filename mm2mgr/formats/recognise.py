"""Recognises a file by its content and reads its connectors: JSON, properties, YAML, Terraform, scripts.

Files within files are read too: see `embedded`. `sources` reads several files together, and folders.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from mm2mgr.errors import Problem, SpecError
from mm2mgr.files import Unreadable, read_bytes
from mm2mgr.formats import confluent, documents, embedded, hcl, mirror_maker1, mm2_properties, properties, strimzi
from mm2mgr.formats import terraform as terraform_files
from mm2mgr.formats.connectors import FoundConnector, FoundWorkers, Note
from mm2mgr.formats.documents import Node
from mm2mgr.formats.embedded import EmbeddedText, Mount
from mm2mgr.formats.properties import Entry
from mm2mgr.formats.templates import is_line_of_template
from mm2mgr.spec.places import MOST_BYTES, Place, read_yaml

TREE_KEYS = frozenset({"owner", "defaults", "clusters", "connect", "links", "flows", "sizing", "brokers"})
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_YAML = re.compile(
    r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*+(?:---|apiVersion[ \t]*:\s|kind[ \t]*:\s"
    r"|services[ \t]*:\s*\n|version[ \t]*:\s*[\"']\d)"
)
_RESOURCE = re.compile(r"(?:#[^\n]*\n|\s++|---)*+(?:apiVersion|kind)[ \t]*:")
_SCRIPT = re.compile(r"\A#!|\A(?:FROM|ARG)\s")
_PAIR = re.compile(r"[^\s.>-][^\s>]*->[^\s]+\.")
Syntax = Literal["properties", "json", "yaml", "dedicated", "hcl", "script"]


@dataclass(frozen=True)
class ForeignFile:
    """A file and its connectors, of other plugins too; `entries` are those of mm2.properties, `text` has the comments.

    `within` are files in its texts: of a ConfigMap, a Secret, a chart's values, a compose file or a script; their lines
    are those of this file. `parts` are sides of a MirrorMaker 1, `commands` how one is started. `mounts` are files
    beside it. `notes` say what could not be taken from it.
    """

    path: str
    syntax: Syntax
    text: str = field(repr=False)  # may hold secrets
    connectors: tuple[FoundConnector, ...]
    entries: tuple[Entry, ...] = field(default=(), repr=False)
    within: tuple[ForeignFile, ...] = field(default=(), repr=False)
    parts: tuple[mirror_maker1.Side, ...] = field(default=(), repr=False)
    commands: tuple[mirror_maker1.StartCommand, ...] = ()
    mounts: tuple[Mount, ...] = ()
    workers: Mapping[str, FoundWorkers] = field(default_factory=dict, repr=False)
    notes: tuple[Note, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing of a mirror is in it; something may be in the files that it mounts."""
        return not (self.connectors or self.within or self.parts or self.commands or self.workers)


def read_file(
    path: Path, content: bytes | None = None, more_locals: Mapping[str, Node] = MappingProxyType({})
) -> ForeignFile:
    """Read a file, or its future content; raise SpecError for what cannot be read or is of no known kind.

    `more_locals` are what other files of its Terraform module define.
    """
    file, text = str(path), read_text(path, content)
    syntax = syntax_of(file, text)
    if syntax == "json":
        read = _read_documents(file, "json", [documents.parse(decode_utf8(file, text), file)], "")
    elif syntax == "yaml":
        read = _yaml(file, text)
    elif syntax == "hcl":
        read = _hcl(file, decode_utf8(file, text), more_locals)
    elif syntax == "script":
        read = _script(file, as_written(text))
    elif text.startswith("ï»¿"):
        raise wrong(
            file, "starts with a byte order mark, which Java takes for a part of the first key: save it without"
        )
    else:
        read = _properties(file, text)
    return _with_file(read, file)


def _with_file(read: ForeignFile, file: str) -> ForeignFile:
    return replace(
        read,
        connectors=tuple(replace(connector, file=connector.file or file) for connector in read.connectors),
        within=tuple(_with_file(inner, file) for inner in read.within),
        notes=tuple(replace(note, file=note.file or file) for note in read.notes),
    )


def syntax_of(file: str, text: str) -> Literal["json", "yaml", "properties", "hcl", "script"]:
    """Return the syntax of a file by its first characters and its name; `text` is its bytes as ISO-8859-1."""
    name = file.lower()
    start = text.removeprefix("ï»¿")
    if name.endswith((".tf", ".tf.tmpl")) or (not name.endswith(".properties") and hcl.is_hcl(start)):
        return "hcl"
    if start.lstrip(" \t\r\n")[:1] in ("{", "[") and not start.lstrip().startswith("{{"):
        return "json"
    if name.endswith((".yaml", ".yml")) or _YAML.match(start):
        return "yaml"
    return "script" if name.endswith((".sh", ".bash")) or _SCRIPT.match(start) else "properties"


class HoldsNoMirror(SpecError):
    """A file is well-formed, and of another kind."""


def no_mirror(file: str, message: str) -> HoldsNoMirror:
    """Return an error about a file of another kind."""
    return HoldsNoMirror([Problem(file, message)])


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


def decode_utf8(file: str, text: str) -> str:
    data = text.encode("iso-8859-1")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise wrong(file, f"is not UTF-8 text, which JSON and YAML have to be (byte {error.start})", line) from error


def as_written(text: str) -> str:
    """Return text as it was typed, where it is read as ISO-8859-1 and is UTF-8."""
    return properties.as_typed(text).removeprefix("\ufeff")


def _properties(file: str, text: str, line_at: Callable[[int], int] = lambda line: line) -> ForeignFile:
    entries = tuple(entry for entry in properties.read(text, file, line_at) if not is_line_of_template(entry.key))
    return _of_entries(file, text, entries)


def _of_entries(file: str, text: str, entries: tuple[Entry, ...]) -> ForeignFile:
    lines = properties.last(entries)
    dedicated = mm2_properties.Dedicated(entries)
    if _is_dedicated(dedicated, lines):
        return ForeignFile(file, "dedicated", text, tuple(mm2_properties.connectors(dedicated)), entries)
    config = {key: properties.meant_value(entry) for key, entry in lines.items()}
    class_name = config.get("connector.class", "")
    if class_name:
        name, line = config.get("name", "").strip(), lines["connector.class"].line
        connector = FoundConnector(name, class_name, config, lines, line, entries)
        return ForeignFile(file, "properties", text, (connector,))
    if role := mirror_maker1.role_of(config, Path(file).name):
        return ForeignFile(file, "properties", text, (), parts=(mirror_maker1.Side(role, file, entries),))
    raise no_mirror(file, _not_a_connector(config))


def _is_dedicated(file: mm2_properties.Dedicated, keys: Iterable[str]) -> bool:
    """Tell whether a file is for the driver: a connector's may hold stray lines of it, but no cluster's address."""
    if "connector.class" in keys:
        return any(f"{alias}.bootstrap.servers" in keys for alias in file.clusters)
    return any(key == "clusters" or _PAIR.match(key) for key in keys)


def _why_none(root: Node) -> str:  # noqa: PLR0911 - one return per kind of document
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
    if confluent.is_resource(root):
        return confluent.why_none(root)
    if kind in ("ConfigMap", "Secret"):
        return f"no text of this {kind} is an mm2.properties or a connector's config"
    if kind == "Kustomization":
        return "it names no file of configs beside it"
    if root.get("services") and root.node_at("services").kind == "object":  # type: ignore[union-attr]
        return "no service of it runs MirrorMaker with a config in it or beside it"
    return f"a {kind} has none; give a KafkaMirrorMaker2 or KafkaConnector" if kind and root.get("apiVersion") else ""


def _not_a_connector(values: Mapping[str, str]) -> str:
    if any(key.startswith("<") for key in values):
        return "is HTML or XML, perhaps the page of a proxy: get the connector's JSON from Connect itself"
    if "broker.id" in values or "process.roles" in values:
        return "is the properties of a broker: give a connector's config or an mm2.properties"
    if values.get("config") == "" or values.get("spec") == "":
        return "looks like YAML: give it a name that ends in .yaml"
    if any(key.startswith(("{{", "{%")) for key in values):
        return "is a template, in which neither a connector nor an mm2.properties shows: render it first"
    if "bootstrap.servers" in values or "group.id" in values:
        return "has no connector.class: it looks like the properties of Connect workers, which --worker takes"
    return "is neither a connector's config (no connector.class) nor an mm2.properties (no clusters)"


def _yaml(file: str, text: str) -> ForeignFile:
    notes: tuple[Note, ...] = ()
    invalid: SpecError | None = None
    try:
        read = read_yaml(Path(file), text.encode("iso-8859-1"))
    except SpecError as error:
        invalid = error
        filled = _without_templates(text)
        if filled == text or not embedded.CONFIG.search(text):
            raise
        read = read_yaml(Path(file), filled.encode("iso-8859-1"))
        message = "is a template: conditions are taken as true, and what it fills in is a placeholder"
        text, notes = filled, (Note(0, message),)
    for document in read:
        if document.values.keys() <= TREE_KEYS and not has_config(document.values):
            raise no_mirror(file, "is a part of an mm2mgr tree: name it with -f/--clusters")
    try:
        roots = [
            embedded.as_a_container_gets_it(documents.of_yaml(document, number)) for number, document in enumerate(read)
        ]
        content = _read_documents(file, "yaml", roots, decode_utf8(file, text))
    except RecursionError as error:
        raise wrong(file, "nested too deeply") from error
    except SpecError as error:
        raise (invalid or error) from None
    return replace(_placeless(content) if notes else content, notes=(*notes, *content.notes))


def holds_config(path: Path) -> bool:
    """Tell whether a file holds the text of a config as other tools write it, whatever else is wrong with it."""
    try:
        return embedded.CONFIG.search(read_text(path)) is not None
    except SpecError:
        return False


def has_config(value: object) -> bool:
    """Tell whether a value of YAML holds the text of a config somewhere, which no tree does."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += item.values()
            if "connector.class" in item or any("->" in str(key) and str(key).endswith(".enabled") for key in item):
                return True
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str) and "\n" in item and embedded.CONFIG.search(item):
            return True
    return False


_BLOCK = re.compile(r"^( *)(?:- )?[^#\n]*:\s*[|>][+-]?\d?[+-]?\s*$|^( *)-\s*[|>][+-]?\s*$")
_OWN_LINE = re.compile(r"^\s*(?:\{\{-?.*-?\}\}|\{%.*%\})\s*$")
_FILLED = re.compile(r"^(\s*(?:- +)*(?:[\w./\"'$-]+:\s+)?)(\{\{.*)$")


def _without_templates(text: str) -> str:
    """Return YAML in which what a template fills in is text, and its own lines are empty; lines stay where they are."""
    lines, block = text.split("\n"), -1
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip(" "))
        if block >= 0 and (not line.strip() or indent > block):
            if _OWN_LINE.match(line):
                lines[number] = " " * (block + 2) + line.strip()  # keeps the block together, wherever it stands
            continue
        if block >= 0 and _OWN_LINE.match(line):
            lines[number] = ""
            continue
        block = -1
        if _OWN_LINE.match(line):
            lines[number] = ""
        elif match := _FILLED.match(line):
            value = match[2].rstrip()
            lines[number] = f"{match[1]}'{value.replace(chr(39), chr(39) * 2)}'"
        if match := _BLOCK.match(line):
            block = len(match[1] if match[1] is not None else match[2])
    return "\n".join(lines)


def _hcl(file: str, text: str, more_locals: Mapping[str, Node]) -> ForeignFile:
    blocks = hcl.parse(text, file)
    resources = terraform_files.of_hcl(blocks, more_locals)
    content = terraform_files.read_resources(resources, file)
    result = _of_terraform(file, "hcl", content, [resource.body for resource in resources], text)
    if result.is_empty:
        raise no_mirror(file, f"holds no connector: {terraform_files.why_none(content.kinds)}")
    return result


def _of_terraform(
    file: str, syntax: Syntax, content: terraform_files.TerraformContent, bodies: Sequence[Node], text: str
) -> ForeignFile:
    manifests = [_read_documents(file, syntax, [node], "", is_part=True) for node in content.documents]
    others = [body for body in bodies if not body.get("manifest")]
    within = [inner for body in others for inner in _files_within(file, body, "") if not inner.is_empty]
    connectors = (*content.connectors, *(connector for read in manifests for connector in read.connectors))
    read = ForeignFile(file, syntax, text, connectors, notes=content.notes)
    within += [inner for read in manifests for inner in read.within]
    return _placeless(replace(read, within=tuple(within)))


def _script(file: str, text: str) -> ForeignFile:
    whole = EmbeddedText("", text, lambda line: line)
    parts = [(part, _inner_or_none(file, part)) for part in embedded.parts_of(whole)]
    within = tuple(inner for _, inner in parts if inner)
    notes = tuple(
        Note(part.line_at(1), "this config is no JSON, such as one with a variable outside of quotes: it is not read")
        for part, inner in parts
        if inner is None and part.text.lstrip().startswith("{") and embedded.CONFIG.search(part.text)
    )
    commands = tuple(mirror_maker1.StartCommand(file, options) for options in embedded.mirror_maker_commands(whole))
    if notes and not within and not commands:
        raise HoldsNoMirror([Problem(Place(file, notes[0].line, 1), notes[0].message)])
    if not within and not commands:
        raise no_mirror(file, "is a script in which neither a here-document nor a curl has a config of MirrorMaker")
    return ForeignFile(
        *(file, "script", text.encode("utf-8", "replace").decode("iso-8859-1"), ()),
        within=within,
        commands=commands,
        notes=notes,
    )


def _read_documents(
    file: str, syntax: Syntax, roots: Sequence[Node], text: str, *, is_part: bool = False
) -> ForeignFile:
    connectors_read: list[FoundConnector] = []
    workers: dict[str, FoundWorkers] = {}
    within: list[ForeignFile] = []
    parts: list[mirror_maker1.Side] = []
    commands: list[mirror_maker1.StartCommand] = []
    notes: list[Note] = []
    reasons: list[str] = []
    shared = _version_of_driver(roots)
    for root in roots:
        if terraform_files.is_terraform(root):
            resources = list(terraform_files.resources(root, file))
            content = terraform_files.read_resources(resources, file)
            read = _of_terraform(file, syntax, content, [resource.body for resource in resources], text)
            connectors_read += read.connectors
            within += read.within
            notes += [*read.notes, *terraform_files.unknown_values(root)]
            reasons.append(terraform_files.why_none(content.kinds))
            continue
        of_confluent = list(confluent.resources(root))
        of_strimzi = [
            node
            for node in (list(strimzi.resources(root)) or [root])
            if strimzi.is_resource(node) and not documents.class_beside(node.get("spec"))
        ]
        for node in of_strimzi:
            if node.word("kind") == "KafkaMirrorMaker":
                consumer, producer, command = mirror_maker1.of_resource(node, file)
                parts += [consumer, producer]
                commands.append(command)
        read_resources = [
            *map(confluent.read_resource, of_confluent),
            *(strimzi.read_resource(node) for node in of_strimzi if node not in of_confluent),
        ]
        for connectors_of, workers_of in read_resources:
            connectors_read += connectors_of
            workers |= workers_of
        if not of_strimzi and not of_confluent:
            connectors_read += documents.connectors(root, Path(file).stem)
            workers |= _container_workers(root)
        for node, version in _with_versions(root, shared):
            beside = {} if node is root else _workers_of(node)
            inner_files = (with_version(inner, version) for inner in _files_within(file, node, text))
            within += [with_workers(inner, beside) for inner in inner_files]
        for node in embedded.maps_of_mirrors(root):
            mirror = _of_map(file, node)
            within += [mirror] if mirror else []
        commands += [
            mirror_maker1.StartCommand(file, options)
            for service in _services(root)
            for options in embedded.listed_commands(service)
        ]
        commands += [
            mirror_maker1.StartCommand(file, options)
            for inner in embedded.texts_of(root, text)
            for options in embedded.mirror_maker_commands(inner)
        ]
    mounts = tuple(mount for root in roots for mount in embedded.mounted_files(root)) if syntax == "yaml" else ()
    connectors = tuple(
        connector if connector.workers else strimzi.with_workers(connector, workers) for connector in connectors_read
    )
    result = ForeignFile(
        *(file, syntax, text, connectors),
        within=tuple(with_workers(inner, workers) for inner in within),
        parts=tuple(parts),
        commands=tuple(commands),
        mounts=mounts,
        workers=workers,
        notes=tuple(notes),
    )
    if result.is_empty and not mounts and not is_part:
        reasons += filter(None, map(_why_none, roots))
        reason = next(iter(reasons), "nothing in it has a connector.class")
        raise no_mirror(file, f"holds no connector: {reason}")
    return result


# --- files within a file ----------------------------------------------------------------------------------------------


def _files_within(file: str, root: Node, text: str) -> Iterator[ForeignFile]:
    """Yield the configs that a document holds as text; of other texts it is not known what they are."""
    for inner in embedded.texts_of(root, text):
        if (content := _inner_or_none(file, inner)) and not content.is_empty:
            yield content


def _inner_or_none(file: str, text: EmbeddedText) -> ForeignFile | None:
    is_side = text.name.endswith(".properties") and "bootstrap.servers" in text.text
    if not (embedded.CONFIG.search(text.text) or is_side):
        return None
    if not text.must_be_config and re.search(r"<<-?\s*['\"]?[A-Za-z_]|^#!", text.text):
        return None  # a script, whose parts are texts of their own
    try:
        return _inner(file, text)
    except SpecError:
        if text.must_be_config and not is_side:
            raise
        return None


def _inner(file: str, text: EmbeddedText) -> ForeignFile:
    """Read a text within a file, so that its lines are those of the file."""
    start = text.text.lstrip()
    if start[:1] in ("{", "[") and not start.startswith("{{"):
        root = documents.parse(text.text, file, text.line_at)
        name = re.sub(r"\.json$", "", text.name)
        content = tuple(documents.connectors(root, name)) or _read_documents(file, "json", [root], "").connectors
        return _placeless(ForeignFile(file, "json", "", content))
    if _RESOURCE.match(text.text):
        first = text.line_at(1)
        if text.line_at(2) != first + 1:
            return ForeignFile(file, "yaml", "", ())
        return _placeless(_yaml(file, ("\n" * (first - 1) + text.text).encode().decode("iso-8859-1")))
    read = _properties(file, text.text.encode("utf-8", "surrogatepass").decode("iso-8859-1"), text.line_at)
    if not read.parts:
        return read
    return replace(read, parts=tuple(_named_part(part, text.name) for part in read.parts))


def _named_part(part: mirror_maker1.Side, name: str) -> mirror_maker1.Side:
    """Return a side of a MirrorMaker 1 with the role that its name within the file says."""
    if "consumer" in name.lower():
        return replace(part, role="consumer")
    return replace(part, role="producer") if "producer" in name.lower() else part


def _of_map(file: str, node: Node) -> ForeignFile | None:
    entries = tuple(replace(entry, path=()) for entry in documents.entries_of(node))
    read = _of_entries(file, "", entries)
    return read if read.connectors else None


def _placeless(read: ForeignFile) -> ForeignFile:
    """Return a file whose connectors are changed by people only: no machine can write what they were read from."""
    return replace(
        read,
        connectors=tuple(
            replace(
                connector,
                home=(),
                places={},
                lines={key: replace(entry, path=()) for key, entry in connector.lines.items()},
            )
            for connector in read.connectors
        ),
        within=tuple(map(_placeless, read.within)),
    )


# --- containers -------------------------------------------------------------------------------------------------------


def _services(root: Node) -> Iterator[Node]:
    """Yield the services of a compose file, or the containers of a workload of Kubernetes."""
    services = root.get("services")
    if services and services.kind == "object":
        yield from (service for _, _, service in services.members)
    containers = root.node_at("spec", "template", "spec", "containers")
    yield from containers.items if containers else ()


def _container_workers(root: Node) -> dict[str, FoundWorkers]:
    """Return the Connect workers that services run, by their group."""
    return {group: workers for service in _services(root) for group, workers in _workers_of(service).items()}


def _workers_of(service: Node) -> dict[str, FoundWorkers]:
    """Return the Connect worker that a service or container runs, by its group; {} for another."""
    content = embedded.worker_properties(embedded.environment_of(service))
    if not content:
        return {}
    policy = content.get("connector.client.config.override.policy", "")
    short = policy.rpartition(".")[2].removesuffix("ConnectorClientConfigOverridePolicy") or None
    version = embedded.version_of_image(service.word("image"))
    group = content.get("group.id") or f"the service at line {service.line}"
    return {group: FoundWorkers(content, version, short)}


def _with_versions(root: Node, shared: str | None) -> Iterator[tuple[Node, str | None]]:
    """Yield a document by parts: each service with the version of its driver, the rest with that of the only one."""
    services = root.get("services")
    if services is None or services.kind != "object":
        yield root, shared
        return
    yield from ((service, embedded.mirror_version(service)) for service in _services(root))
    yield replace(root, members=tuple(member for member in root.members if member[0] != "services")), shared


def _version_of_driver(roots: Sequence[Node]) -> str | None:
    """Return the Kafka version of the image that starts the driver, None where several do."""
    versions = {embedded.mirror_version(service) for root in roots for service in _services(root)} - {None}
    return versions.pop() if len(versions) == 1 else None


def with_version(read: ForeignFile, version: str | None) -> ForeignFile:
    """Return a file whose dedicated MirrorMaker runs with this Kafka version, where it is known."""
    return replace(
        read,
        connectors=tuple(
            replace(connector, workers=replace(connector.workers, version=connector.workers.version or version))
            if connector.form == "dedicated" and connector.workers
            else connector
            for connector in read.connectors
        ),
    )


def with_workers(read: ForeignFile, workers: Mapping[str, FoundWorkers]) -> ForeignFile:
    """Return a file within another, or mounted by it, whose connectors run on the only Connect workers of that."""
    if len(workers) != 1:
        return read
    [only] = workers.values()
    return replace(
        read,
        connectors=tuple(
            replace(connector, workers=only) if connector.form == "connect" and not connector.workers else connector
            for connector in read.connectors
        ),
    )
