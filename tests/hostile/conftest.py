"""What the commands' tests start from: a folder, the command in it, two fake Connect clusters, brokers without a JVM."""

from tests.cli.conftest import closed_port, mm2mgr, mock_cluster, site
from tests.cli.test_watch import watched
from tests.render.test_templates import own, topology

__all__ = ["closed_port", "mm2mgr", "mock_cluster", "own", "site", "topology", "watched"]
