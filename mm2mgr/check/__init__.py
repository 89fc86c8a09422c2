"""Checks a tree against real brokers and workers: rights of every principal, cluster ids, size limits, workers.

`needs` holds the rights that must exist, `mm2mgr.live.rights` asks for them, `run` combines both into a `Checked`. All
of it is pure.
"""
