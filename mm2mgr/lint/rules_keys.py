"""Placeholder."""

from __future__ import annotations

from mm2mgr.lint.findings import Rule

RULES: tuple[Rule, ...] = ()
