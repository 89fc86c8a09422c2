"""The way to a declared Kafka cluster, as planning takes it too: see `mm2mgr.reconcile.access`."""

from __future__ import annotations

from mm2mgr.reconcile.access import kafka_access

__all__ = ["kafka_access"]
