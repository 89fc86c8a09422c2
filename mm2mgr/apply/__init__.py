"""Writes to clusters: executes plans and verbs, watches the outcome, keeps leases, history and the event log."""
