"""What to write instead of a key that does not do what people want: spellings that work, for the reader's own kind of file.

In: a subject and a key; out: text, with secrets masked. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache

from mm2mgr.lint.spelling import client_key, cluster_key, connector_key, spelled
from mm2mgr.lint.subject import Subject
from mm2mgr.secrets import mask
from mm2mgr.spec.keys import SECURITY_KEYS
from mm2mgr.truth.explain import KINDS, nearest, split
from mm2mgr.truth.keys import load
from mm2mgr.truth.reach import CLIENTS, CLUSTER_KEYS

_LONGEST = 60
SCOPES = (*CLIENTS, *KINDS)
# The clients people mean when they say producer, consumer or admin without saying more, most likely ones first.
_MEANT = ("source consumer", "record producer", "checkpoints consumer", "target admin", "source admin")


def written(subject: Subject, key: str) -> str:
    """Return the key as people wrote it: in mm2.properties it stands behind a prefix that the driver takes off."""
    place = subject.spots.get(key)
    return (place.key if place else "") or key


def shown(subject: Subject, key: str) -> str:
    """Return a key's value to be put into a fix: masked, and cut when it is long."""
    value = mask(key, subject.get(key))
    return value if len(value) <= _LONGEST and "\n" not in value else "…"


def instead(subject: Subject, key: str) -> str:
    """Return what to write instead of a client's key (or a connector's key behind a prefix) that reaches nobody."""
    prefix, plain = parts(subject, key)
    ways = list(dict.fromkeys(_ways(subject, prefix, plain, shown(subject, key))))
    if not ways:
        return f"take {written(subject, key)} out: a {subject.type} connector has no client that could use it"
    return f"write {' or '.join(ways)}"


def parts(subject: Subject, key: str) -> tuple[str, str]:
    """Return prefix and plain key of any spelling, those of mm2.properties included."""
    known = load()
    for alias in ("", f"{subject.source}.", f"{subject.target}."):
        rest = key.rpartition("->")[2].partition(".")[2] if "->" in key else key
        if alias != "." and rest.startswith(alias):
            prefix, plain = split(rest.removeprefix(alias), known)
            if _is_known(plain):
                return prefix or (alias and _side_of(subject, alias)), plain
    return split(key, known)


def _side_of(subject: Subject, alias: str) -> str:
    return "source.cluster." if alias == f"{subject.source}." else "target.cluster."


@cache
def _is_known(plain: str) -> bool:
    return any(load().history(scope, plain) for scope in SCOPES)


def _ways(subject: Subject, prefix: str, plain: str, value: str) -> Iterator[str]:
    known = load()
    if plain in CLUSTER_KEYS | SECURITY_KEYS:
        yield from _cluster_ways(subject, prefix, plain, value)
        return
    if known.history(subject.type, plain):
        yield connector_key(subject, plain, value)
    syncs = subject.client("offset-syncs producer")
    if prefix == "source.producer." and syncs and subject.form != "dedicated":
        # Who writes this prefix means the offset syncs, which are on the other side then.
        yield spelled(subject, f"{syncs.layers[-1].prefix}{plain}", value)
    asked = [kind for kind in KINDS if kind in prefix.split(".") and known.history(kind, plain)] or list(KINDS)
    for name in _MEANT:
        client = subject.client(name)
        # `source.` and `target.` say which admin client; of the producers and consumers there is one that matters.
        other_side = client and client.kind == "admin" and prefix[:7] in ("source.", "target.")
        if client is None or (other_side and not prefix.startswith(client.side)):
            continue
        if client.kind in asked and known.history(client.kind, plain):
            yield client_key(subject, name, plain, value)


def _cluster_ways(subject: Subject, prefix: str, plain: str, value: str) -> Iterator[str]:
    records = subject.form == "connect"
    if "producer" in prefix and records:
        yield client_key(subject, "record producer", plain, value)
        return
    if subject.type != "heartbeat" and not prefix.startswith("target."):
        yield cluster_key(subject, "source", plain, value)
    if not prefix.startswith(("source.", "consumer.")) or subject.type == "checkpoint":
        yield cluster_key(subject, "target", plain, value)
        if records:
            yield client_key(subject, "record producer", plain, value)


@cache
def near(key: str) -> tuple[str, float]:
    """Return the known key that looks most like one, and how alike they are (0 to 1)."""
    known = load()
    found = nearest(key, *split(key, known), known)
    return (found, SequenceMatcher(None, found, key).ratio()) if found else ("", 0.0)


def better(subject: Subject, key: str, name: str) -> str:
    """Spell a better name the way the file spells the key: behind its pair or alias."""
    prefix, plain = parts(subject, key)
    if not name.startswith(prefix):
        return name
    value = mask(name, shown(subject, key))  # the mistake may be in the very word that makes it a secret
    if subject.form == "tree":
        return spelled(subject, name, value)
    return f"{written(subject, key).removesuffix(plain)}{name.removeprefix(prefix)}={value}"


def since(subject: Subject, key: str) -> tuple[str, str | None]:
    """Return the first line that has a key, and its default there."""
    known, plain = load(), parts(subject, key)[1]
    found = [known.history(scope, name) for scope, name in ((subject.type, key), *((kind, plain) for kind in SCOPES))]
    oldest = next(history[0] for history in found if history)
    return oldest.exists_in[0], oldest.default
