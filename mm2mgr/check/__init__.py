"""Asks real brokers and workers whether a tree can work: rights of every principal, cluster ids, size limits, workers.

Reads only. `needs` says what must hold, `rights` (in mm2mgr.kafka) asks, `run` brings both together as a `Checked`.
"""
