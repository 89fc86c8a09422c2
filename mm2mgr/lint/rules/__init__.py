"""All rules of lint. A rule is a decorated function in one of these modules; a new module needs its name in the list here."""

from __future__ import annotations

from mm2mgr.lint.findings import Rule, rules_of
from mm2mgr.lint.rules import (
    aliases,
    checkpoints,
    dedicated,
    exactly_once,
    files,
    keys,
    loops,
    pair,
    records,
    security,
    sizes,
    sync,
    topics,
    values,
    worker,
)

# In the order in which people read them.
RULES: tuple[Rule, ...] = rules_of(
    *(keys, values, worker, security, exactly_once, records, sizes, topics, sync),
    *(loops, aliases, pair, checkpoints, dedicated, files),
)
BY_ID = {rule.id: rule for rule in RULES}
