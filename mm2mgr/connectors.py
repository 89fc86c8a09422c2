"""States of a connector in Kafka Connect's words, shared by all that judges connectors."""

from __future__ import annotations

RESTING = frozenset({"PAUSED", "STOPPED"})
"""States in which nothing of a connector runs, as somebody asked."""
SETTABLE = RESTING | {"RUNNING"}
"""States that a request can ask for."""
SETTLED = SETTABLE | {"FAILED"}
"""States that last until somebody does something; a connector without status, UNASSIGNED or RESTARTING is on its
way.
"""
