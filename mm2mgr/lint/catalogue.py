"""All rules, in the order people read them: a tuple a family, put together here. Adding a rule is a function and its line."""

from __future__ import annotations

from mm2mgr.lint import (
    rules_dedicated,
    rules_estate,
    rules_exactly_once,
    rules_files,
    rules_keys,
    rules_pair,
    rules_records,
    rules_security,
    rules_sizes,
    rules_sync,
    rules_topics,
    rules_values,
    rules_ways,
    rules_worker,
)
from mm2mgr.lint.findings import Rule

RULES: tuple[Rule, ...] = (
    *rules_keys.RULES,
    *rules_values.RULES,
    *rules_worker.RULES,
    *rules_security.RULES,
    *rules_exactly_once.RULES,
    *rules_records.RULES,
    *rules_sizes.RULES,
    *rules_topics.RULES,
    *rules_sync.RULES,
    *rules_estate.RULES,
    *rules_ways.RULES,
    *rules_pair.RULES,
    *rules_dedicated.RULES,
    *rules_files.RULES,
)
BY_ID = {rule.id: rule for rule in RULES}
