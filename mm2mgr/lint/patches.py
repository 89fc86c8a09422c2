"""A fix as JSON Patch, for tools that keep configs themselves."""

from __future__ import annotations

from collections.abc import Mapping

from mm2mgr.lint.findings import Edit, Hit
from mm2mgr.secrets import mask


def patch(hit: Hit) -> list[dict[str, str]]:
    """Return a fix as JSON Patch (RFC 6902) of the connector's config, or of the lines of an mm2.properties.

    [] where a fix is none, changes another connector too, or would show a secret.
    """
    config = {**hit.subject.config} if hit.subject else {}
    config |= {edit.at.key: edit.at.value for edit in hit.edits if edit.at}
    if any(edit.of and edit.of is not hit.subject for edit in hit.edits):
        return []
    gone = [each for each in map(_gone, hit.edits) if each in config]
    operations: list[dict[str, str]] = []
    for edit in hit.edits:
        if edit.value is None:
            continue
        same = next((key for key in gone if config[key] == edit.value), None)
        if same is not None and edit.key not in config:
            gone.remove(same)
            operations.append({"op": "move", "from": _pointer(same), "path": _pointer(edit.key)})
        elif mask(edit.key, edit.value) != edit.value:
            return []
        else:
            operations += _test(edit.key, config)
            op = "replace" if edit.key in config else "add"
            operations.append({"op": op, "path": _pointer(edit.key), "value": edit.value})
    for key in gone:
        operations += [*_test(key, config), {"op": "remove", "path": _pointer(key)}]
    return operations


def _gone(edit: Edit) -> str | None:
    """Return the key that an edit removes."""
    if edit.at and (edit.value is None or edit.at.key != edit.key):
        return edit.at.key
    return edit.key if edit.value is None else None


def _test(key: str, config: Mapping[str, str]) -> list[dict[str, str]]:
    value = config.get(key)
    if value is None or mask(key, value) != value:
        return []
    return [{"op": "test", "path": _pointer(key), "value": value}]


def _pointer(key: str) -> str:
    return "/" + key.replace("~", "~0").replace("/", "~1")
