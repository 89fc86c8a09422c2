"""Writes a tree as text: short blocks on one line, and at each line's end where its value comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mm2mgr.spec.files import inline_yaml
from mm2mgr.spec.places import PathKey

_WIDTH = 110
_INDENT = "  "
_ALWAYS_DEEP = 1000  # levels from which no block is put on one line
Comments = Mapping[PathKey, str]


def write_document(
    values: Mapping[str, object], comments: Comments, head: Sequence[str] = (), *, is_compact: bool = True
) -> str:
    """Return a YAML document; `comments` stand at the end of the lines of their paths.

    Where it is not compact, each value has a line of its own.
    """
    lines = [f"# {line}".rstrip() for line in head]
    for key, value in values.items():
        if lines:
            lines.append("")
        lines += _lines((key,), value, comments, 0 if is_compact else _ALWAYS_DEEP)
    return "\n".join(lines) + "\n"


def _lines(path: PathKey, value: object, comments: Comments, depth: int) -> Iterator[str]:
    name, indent = inline_yaml(str(path[-1])), _INDENT * (depth % _ALWAYS_DEEP)
    if isinstance(value, dict) and value and not _fits(path, value, comments, depth):
        yield _with_comment(f"{indent}{name}:", comments.get(path))
        for key, below in value.items():
            yield from _lines((*path, key), below, comments, depth + 1)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield f"{indent}{name}:"
        for index, item in enumerate(value):
            yield _with_comment(f"{indent}{_INDENT}- {inline_yaml(item)}", comments.get((*path, index)))
    elif isinstance(value, list) and len(inline_yaml(value)) + len(indent) + len(name) > _WIDTH:
        yield _with_comment(f"{indent}{name}: [", comments.get(path))
        yield from wrap_items([inline_yaml(item) for item in value], indent + _INDENT)
        yield f"{indent}]"
    else:
        yield _with_comment(
            f"{indent}{name}: {inline_yaml(value)}", comments.get(path) or _comment_below(path, comments)
        )


def wrap_items(items: Sequence[str], indent: str) -> Iterator[str]:
    """Yield the items of a list in lines that are filled."""
    line = indent
    for item in items:
        if line != indent and len(line) + len(item) + 1 > _WIDTH:
            yield line.rstrip()
            line = indent
        line += f"{item}, "
    yield line.rstrip()


def _fits(path: PathKey, value: Mapping[str, object], comments: Comments, depth: int) -> bool:
    """Tell whether a block is short enough for one line, and has no more to say at its end than one origin."""
    if len(path) < 2 or (len(path) == 2 and path[0] != "connect") or depth >= _ALWAYS_DEEP:
        return False
    text = inline_yaml(value)
    origins = {text for where, text in comments.items() if where[: len(path)] == path}
    return len(_INDENT) * depth + len(str(path[-1])) + len(text) + 2 <= _WIDTH and len(origins) <= 1


def _comment_below(path: PathKey, comments: Comments) -> str | None:
    return next((text for where, text in comments.items() if where[: len(path)] == path), None)


def _with_comment(line: str, comment: str | None) -> str:
    return f"{line}  # {comment}" if comment else line
