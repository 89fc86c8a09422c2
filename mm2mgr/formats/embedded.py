"""Finds configs in the texts of other files: ConfigMaps, values of charts, compose files, scripts, here-documents.

Nothing is executed or filled in: variables of a shell and templates stay as they are written.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mm2mgr.formats.documents import Node, entries_of
from mm2mgr.formats.properties import LINE_END, Entry
from mm2mgr.truth.keys import kafka_version

LineAt = Callable[[int], int]
"""The line of the file for a line of a text in it, both from 1."""

CONFIG = re.compile(
    r"^[ \t]*clusters[ \t]*[=:]|connector\.class|->[^\s=>]{1,250}?\.enabled"
    r"|kind:[ \t]*Kafka(?:MirrorMaker|Connect)",
    re.MULTILINE,
)
_FILE_OF_KAFKA = re.compile(r"\.(properties|json|conf|cfg|ya?ml|tmpl|tpl|template)$")
_LITERAL = re.compile(r":\s*\|[+-]?\d?[+-]?\s*(?:#.*)?$|^\s*-\s*\|[+-]?\d?[+-]?\s*(?:#.*)?$")
_HERE = re.compile(r"<<(-?)\s*(['\"]?)([A-Za-z_]\w*)\2")
_VARIABLE = re.compile(r"(?<![\\$])\$([A-Za-z_]\w*)")  # braces make it the same, and plain to see
_BODY = re.compile(  # `-d '{…`, `-sd'{…`, `--json='{…`, also with the body on the next line
    r"""(?:(?<![\w-])-[A-Za-z]{0,6}d(?:[\s=]|\\\r?\n)*"""
    r"""|--(?:data(?:-raw|-binary|-ascii)?|json)(?:[\s=]|\\\r?\n)+)(?=\$?['"]\s*\{)"""
)
_PART_OF_WORD = re.compile(  # quoted as a shell has it, or not
    r"""'(?P<plain>[^']*)'|\$'(?P<ansi>(?:[^'\\]|\\.)*)'"""
    r"""|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>(?:[^\s'"\\;|&<>()`]|\\.)+)""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"""\\([$`"\\])""")
_ESCAPED_IN_ANSI = re.compile(r"\\(.)", re.DOTALL)
_ANSI = {"'": "'", '"': '"', "\\": "\\", "n": " ", "t": " ", "r": " "}  # white space of JSON; lines stay
_PUT = re.compile(r"/connectors/([\w.%-]+)/config")
_COMMAND_END = re.compile(r"(?<!\\)\r?\n(?![ \t]*--)")
_MIRROR_MAKER = re.compile(r"kafka-mirror-maker(?:\.sh)?\b|kafka\.tools\.MirrorMaker\b")
_NEAR = 600  # characters between a curl's URL and its body
_MOST_COMMAND = 20_000


@dataclass(frozen=True)
class EmbeddedText:
    """A text in a file: `name` is the key or file name that it has there, `line_at` where its lines are."""

    name: str
    text: str = field(repr=False)  # may hold secrets
    line_at: LineAt

    @property
    def must_be_config(self) -> bool:
        """Whether its name says that Kafka reads it; other texts are scripts and notes that speak of a connector."""
        return self.name.endswith((".properties", ".json"))


def texts_of(root: Node, source: str) -> Iterator[EmbeddedText]:
    """Yield every text below a node that may hold configs; `source` is the whole file, "" where texts have one line."""
    lines = LINE_END.split(source) if source else []
    yield from (inner for text in _texts(root, lines, "") for inner in (text, *parts_of(text)))


def _texts(node: Node, lines: Sequence[str], name: str) -> Iterator[EmbeddedText]:
    if node.kind in ("text", "expression"):
        if "\n" in node.text or "{" in node.text or "mirror" in node.text:
            yield EmbeddedText(name, node.text, _line_at(node, lines))
    elif _is_secret(node):
        for key, line, item in (node.get("data") or node).members:
            if item.kind == "text" and (text := _decode(item.text)):
                yield EmbeddedText(key, text, lambda _, line=line: line)  # type: ignore[misc]
        if plain := node.get("stringData"):
            yield from _texts(plain, lines, "stringData")
    else:
        for key, _, item in node.members:
            yield from _texts(item, lines, key)
        for item in node.items:
            yield from _texts(item, lines, name)


def _is_secret(node: Node) -> bool:
    return node.word("kind") == "Secret" and node.get("data") is not None


def _decode(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def _line_at(node: Node, lines: Sequence[str]) -> LineAt:
    """Return where the lines of a text are: below its key in a block of YAML or a here-document, else all in one."""
    first = node.text_line
    if not first and 0 < node.line <= len(lines) and _LITERAL.search(lines[node.line - 1]):
        first = node.line + 1
    return (lambda line: first + line - 1) if first else (lambda _: node.line)


def parts_of(text: EmbeddedText) -> Iterator[EmbeddedText]:
    """Yield the here-documents of a script, and the bodies that its `curl` sends."""
    if "<<" in text.text:
        yield from _here_documents(text)
    if "curl" in text.text:
        starts = _line_starts(text.text)
        end = 0
        for match in _BODY.finditer(text.text):
            if match.start() < end:
                continue  # within a body
            above = bisect_right(starts, match.end()) - 1
            body, end = _shell_word(text.text, match.end())
            near = text.text[max(0, match.start() - _NEAR) : match.start()]
            after = text.text[end : end + _NEAR].partition("curl")[0]
            names = [*_PUT.findall(near.rpartition("curl")[2]), *_PUT.findall(after)]
            if body:
                yield EmbeddedText(names[0] if names else text.name, body, _shift(text.line_at, above))


def _shell_word(text: str, start: int) -> tuple[str, int]:
    """Return the JSON object that a word of a shell has from a place on, without the quotes, and where it ends.

    Variables keep their names, in braces; an escaped end of line stays, so that lines can be counted.
    """
    parts, end, depth = list[str](), start, 0
    while match := _PART_OF_WORD.match(text, end):
        end, part = match.end(), match["plain"]
        if match["ansi"] is not None:
            part = _ESCAPED_IN_ANSI.sub(_ansi, match["ansi"])
        elif part is None:
            part = _unescape(_VARIABLE.sub(r"${\1}", match["quoted"] if match["bare"] is None else match["bare"]))
        elif part.lstrip("{ \t\r\n").startswith('\\"'):  # sh -c "curl -d '{\"…
            part = _unescape(part)
        parts.append(part)
        depth += part.count("{") - part.count("}")
        if depth == 0:
            break  # what follows may be a quote that was begun before it
    return "".join(parts), end


def _unescape(text: str) -> str:
    return _ESCAPED.sub(r"\1", text).replace("\\\n", "\n")


def _ansi(escape: re.Match[str]) -> str:
    """Return what an escape in bash's quotes `$'…'` stands for; one of the rarer ones stays as it is written."""
    return _ANSI.get(escape[1], escape[0])


def _line_starts(text: str) -> list[int]:
    return [0, *(end.end() for end in re.finditer("\n", text))]


def _shift(line_at: LineAt, above: int) -> LineAt:
    return lambda line: line_at(line + above)


def _here_documents(text: EmbeddedText) -> Iterator[EmbeddedText]:
    end, indented, is_literal, start, name, begun = "", False, False, 0, "", list[str]()
    for number, line in enumerate(text.text.split("\n")):
        if not end:
            if match := _HERE.search(line):
                end, indented, is_literal, start, begun = match[3], bool(match[1]), bool(match[2]), number + 1, []
                target = re.search(r">\s*([^\s;|&<>]+)", line)
                put = _PUT.search(line)
                name = target[1].strip("'\"") if target else put[1] if put else ""
        elif line.strip() == end:  # within YAML its own indentation is gone, or not
            body = "\n".join(begun)
            body = body if is_literal else _VARIABLE.sub(r"${\1}", body)
            yield EmbeddedText(name, body, _shift(text.line_at, start))
            end = ""
        else:
            begun.append(line.lstrip("\t") if indented else line)


def maps_of_mirrors(root: Node) -> Iterator[Node]:
    """Yield the objects whose members are the lines of an mm2.properties, as values of charts have them."""
    if root.kind == "object":
        names = [key for key, _, _ in root.members]
        if "connector.class" in names:  # lines of the driver on a connector, which ignores them
            return
        if "clusters" in names and any(
            key.endswith(".bootstrap.servers") or ("->" in key and key.endswith(".enabled")) for key in names
        ):
            yield root
            return
    for _, _, item in root.members:
        yield from maps_of_mirrors(item)
    for item in root.items:
        yield from maps_of_mirrors(item)


# --- containers -------------------------------------------------------------------------------------------------------


def as_a_container_gets_it(root: Node) -> Node:
    """Return a compose file with one dollar where it has `$$`, which Compose writes for one; any other as it is.

    https://docs.docker.com/reference/compose-file/interpolation/
    """
    services = root.get("services")
    is_compose = services is not None and services.kind == "object" and root.get("apiVersion") is None
    return _with_single_dollars(root) if is_compose else root


def _with_single_dollars(node: Node) -> Node:
    return replace(
        node,
        text=node.text.replace("$$", "$"),
        members=tuple((key, line, _with_single_dollars(item)) for key, line, item in node.members),
        items=tuple(map(_with_single_dollars, node.items)),
    )


_VERSION = re.compile(r"kafka-(\d+\.\d+(?:\.\d+)?)$|^v?(\d+\.\d+(?:\.\d+)?)")
_IMAGES = re.compile(r"(?:^|/)(?:kafka|kafka-native|cp-[\w-]+|connect|kafka-connect)$")


def version_of_image(image: str) -> str | None:
    """Return the Kafka version of a known image: Apache's, Bitnami's, Confluent's, Strimzi's; None for others."""
    name, _, tag = image.partition("@")[0].rpartition(":")
    if not _IMAGES.search(name) or "debezium" in name:
        return None
    match = _VERSION.search(tag)
    if not match:
        return None
    if match[1]:
        return kafka_version(match[1])
    return kafka_version(f"{match[2]}-ccs" if re.search(r"(?:^|/)cp-", name) else match[2])


def environment_of(service: Node) -> dict[str, Entry]:
    """Return the environment of a service or container: a map, `A=b` lines, or entries with name and value."""
    node = service.get("environment") or service.get("env") or Node("null", 0)
    entries = {entry.key: entry for entry in entries_of(node)} if node.kind == "object" else {}
    for item in node.items:
        if item.kind == "object":
            name, value = item.word("name"), item.word("value")
            entries[name] = Entry(name, value, value, item.line)
        else:
            name, _, value = item.text.partition("=")
            entries[name] = Entry(name, value, value, item.line)
    return entries


_ADDRESS = "CONNECT_BOOTSTRAP_SERVERS"
_DEBEZIUM = ("BOOTSTRAP_SERVERS", "GROUP_ID", "CONFIG_STORAGE_TOPIC", "OFFSET_STORAGE_TOPIC", "STATUS_STORAGE_TOPIC")


def worker_properties(environment: Mapping[str, Entry]) -> dict[str, str]:
    """Return the properties of Connect workers that an image makes of its environment, {} for other images.

    Confluent's: `CONNECT_` and the key in capitals, with _ for a dot, __ for a dash and ___ for an underscore;
    Debezium's has five more names without the prefix.
    """
    properties = {
        _plain(name.removeprefix("CONNECT_")): entry.value
        for name, entry in environment.items()
        if name.startswith("CONNECT_")
    }
    for name in _DEBEZIUM:
        if name in environment and ("GROUP_ID" in environment or properties):
            properties.setdefault(_plain(name), environment[name].value)
    is_worker = "group.id" in properties or "offset.storage.topic" in properties or _ADDRESS in environment
    return properties if is_worker and "bootstrap.servers" in properties else {}


def _plain(name: str) -> str:
    return "_".join("-".join(part.replace("_", ".") for part in of.split("__")) for of in name.lower().split("___"))


def command_of(service: Node) -> str:
    """Return entry point and command of a service or container as one text."""
    nodes = [node for name in ("entrypoint", "command", "args") if (node := service.get(name))]
    return " ".join(item.text for node in nodes for item in (node.items or (node,)))


@dataclass(frozen=True)
class Mount:
    """A file that another one names relative to itself; `version` is the Kafka version of the image that reads it."""

    path: str
    line: int
    version: str | None = None


def mirror_version(service: Node) -> str | None:
    """Return the Kafka version of a service that starts MirrorMaker's driver, None for others and unknown ones."""
    return version_of_image(service.word("image")) if "connect-mirror-maker" in command_of(service) else None


def mounted_files(root: Node) -> Iterator[Mount]:
    """Yield the files that a compose file or a kustomization takes from beside it."""
    for _, _, service in (root.get("services") or Node("null", 0)).members:
        for item in (service.get("volumes") or Node("null", 0)).items:
            path = item.word("source") if item.kind == "object" else item.text.partition(":")[0]
            if path.startswith((".", "${PWD}/", "$PWD/")) and _FILE_OF_KAFKA.search(path):
                yield Mount(re.sub(r"^\$\{?PWD\}?/", "", path), item.line, mirror_version(service))
    for name in ("configs", "secrets"):
        for _, line, config in (root.get(name) or Node("null", 0)).members:
            if (path := config.word("file")) and _FILE_OF_KAFKA.search(path):
                yield Mount(path, line)
    for name in ("configMapGenerator", "secretGenerator"):
        for generator in (root.get(name) or Node("null", 0)).items:
            for item in (generator.get("files") or Node("null", 0)).items:
                yield Mount(item.text.rpartition("=")[2], item.line)


# --- the command of MirrorMaker 1 -------------------------------------------------------------------------------------


def mirror_maker_commands(text: EmbeddedText) -> Iterator[dict[str, Entry]]:
    """Yield the options of each `kafka-mirror-maker` command in a text, by name without dashes; flags are `true`."""
    starts, at = _line_starts(text.text), 0
    while match := _MIRROR_MAKER.search(text.text, at):
        above = bisect_right(starts, match.start())
        ends = _COMMAND_END.search(text.text, match.end(), match.end() + _MOST_COMMAND)
        at = ends.start() if ends else min(match.end() + _MOST_COMMAND, len(text.text))
        command = text.text[match.end() : at]
        words = _words(re.sub(r"\\?\r?\n", " ", command))
        options = {
            name: replace(entry, line=text.line_at(above + command.count("\n", 0, max(command.find(f"--{name}"), 0))))
            for name, entry in _options(words).items()
        }
        if options.keys() & {"whitelist", "include", "consumer.config", "producer.config"}:
            yield options


def listed_commands(service: Node) -> Iterator[dict[str, Entry]]:
    """Yield the options of a `kafka-mirror-maker` that a service or container starts by a list of words."""
    items = [item for name in ("entrypoint", "command", "args") if (node := service.get(name)) for item in node.items]
    for at, item in enumerate(items):
        if _MIRROR_MAKER.search(item.text) and not re.search(r"\s", item.text):
            lines = {word.text.partition("=")[0].lstrip("-"): word.line for word in items}
            options = _options([word.text for word in items[at + 1 :]])
            if options:
                yield {name: replace(entry, line=lines.get(name, item.line)) for name, entry in options.items()}


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command, comments=True)
    except ValueError:  # a quote that goes on somewhere else
        return [word.strip("\"';") for word in command.split()]


def _options(words: Sequence[str]) -> dict[str, Entry]:
    options: dict[str, Entry] = {}
    waiting = ""
    for word in words:
        if word in ("&&", "||", "|", ";", "&") or word.startswith((">", "2>")):
            break
        if word.startswith("--"):
            waiting, _, value = word[2:].partition("=")
            options[waiting] = Entry(waiting, value or "true", word, 0)
        elif waiting:
            options[waiting] = Entry(waiting, word.rstrip(";"), word, 0)
            waiting = ""
    return options
