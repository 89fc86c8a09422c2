"""Where a config stores its offsets, and the marks of an offset move in progress. Pure: configs in, configs out.

The marks are keys of the connector's own config, so a move survives the process that began it.
"""

from __future__ import annotations

from collections.abc import Mapping

Config = Mapping[str, str]

TOPIC = "offsets.storage.topic"
THEN_KEY = "mm2mgr.offsets_then"
"""The state that the connector is brought back to; with it alone its offsets are where its config says."""
FROM_KEY = "mm2mgr.offsets_from"
"""The topic that its offsets are still to be taken from, empty for the workers' own; overrides as they were follow behind a dot."""
NEEDS_KEY = "mm2mgr.offsets_needed"
"""The topics without whose stored offsets the connector must not run, joined by commas: they have arrived on the target already."""
# Which Kafka the topic is on: without them a topic of the same name elsewhere would be read, and created, empty.
_OVERRIDES = ("producer.override.", "consumer.override.", "admin.override.")


def is_moved(live: Config, wanted: Config) -> bool:
    """Tell whether writing `wanted` would leave stored offsets behind, or a move that was begun unfinished."""
    return THEN_KEY in live or _topic(live) != _topic(wanted)


def left_at(live: Config, wanted: Config) -> dict[str, str] | None:
    """Return the keys that lead to offsets which `wanted` does not reach; None when it reaches them."""
    if FROM_KEY in live:
        behind = f"{FROM_KEY}."
        overrides = {key.removeprefix(behind): value for key, value in live.items() if key.startswith(behind)}
        return {TOPIC: live[FROM_KEY]} | overrides
    return place(live) if _topic(live) != _topic(wanted) else None


def place(config: Config) -> dict[str, str]:
    """Return the keys that say where offsets are stored; the topic is empty for the workers' own."""
    return {TOPIC: _topic(config)} | {key: value for key, value in config.items() if key.startswith(_OVERRIDES)}


def at(where: Config, config: Config) -> dict[str, str]:
    """Return a config that finds its offsets at another place."""
    own = place(config)
    return {key: value for key, value in config.items() if key not in own} | {
        key: value for key, value in where.items() if value
    }


def marked(config: Config, then: str, where: Config | None = None) -> dict[str, str]:
    """Return a config that says how a move ends: in which state, and from where offsets are still to be taken."""
    marks = {THEN_KEY: then}
    for key, value in (where or {}).items():
        marks[FROM_KEY if key == TOPIC else f"{FROM_KEY}.{key}"] = value
    return {**unmarked(config), **marks}


def unmarked(config: Config) -> dict[str, str]:
    """Return a config without marks."""
    marks = (THEN_KEY, NEEDS_KEY)
    return {key: value for key, value in config.items() if key not in marks and not key.startswith(FROM_KEY)}


def move_text(live: Config, wanted: Config) -> str:
    """Describe, for a plan, what an update does besides writing the config."""
    if NEEDS_KEY in live:
        return f"finishes checking its stored offsets, then {live[THEN_KEY]}"
    if THEN_KEY in live:
        return f"finishes moving its stored offsets, then {live[THEN_KEY]} again"
    return f"stops the connector, copies its offsets from {_named(live)} to {_named(wanted)}, resumes it"


def _topic(config: Config) -> str:
    return config.get(TOPIC, "").strip()


def _named(config: Config) -> str:
    return _topic(config) or "the workers' own topic"
