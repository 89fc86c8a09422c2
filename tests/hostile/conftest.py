"""The command and two fake Connect clusters, as the tests of the command line have them."""

from __future__ import annotations

from tests.cli.conftest import impatient, mm2mgr, site
from tests.kafka.conftest import closed_port, mock_cluster

__all__ = ["closed_port", "impatient", "mm2mgr", "mock_cluster", "site"]
