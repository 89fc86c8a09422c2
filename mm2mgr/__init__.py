"""mm2mgr: the control plane for Apache Kafka MirrorMaker 2."""

__version__ = "0.1.0"
