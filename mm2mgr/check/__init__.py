"""Checks a tree against real brokers and workers: rights of every principal, cluster ids, size limits, workers.

It only reads. `needs` holds the rights that must exist, `mm2mgr.kafka.inspection` asks for them, `run` combines both into a `Checked`.
"""
