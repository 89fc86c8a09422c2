from kafka.conftest import closed_port, mock_cluster

__all__ = ["closed_port", "mock_cluster"]
