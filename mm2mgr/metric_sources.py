"""The systems besides Kafka that know the load of a cluster: one line per source, for the declaration, `sample`, lint
and the roll-ups.

A new source is a line here and the module that it names, whose `open_source` returns what `sample` asks. Nothing is
imported here, because Spark's executors read it too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceKind:
    """One kind of metric source: its name for `--from`, and what messages call the system."""

    name: str
    service: str
    module: str
    column: str
    """What the column `source` of its samples holds; METRIC is the name of a metric."""
    declared: str = ""
    """What its endpoint (`url`, `auth`, `tls`) is for, where `metrics:` declares no more; "" where it has its own
    model.
    """
    past: str = ""
    """What `--back` reads the past from; "" where it has no past to choose from."""
    on_spark: bool = False
    """Whether Spark reads it where Spark is found; each process that samples it then has a session."""

    @property
    def key(self) -> str:
        """Its key under `metrics:` of a cluster."""
        return self.name.replace("-", "_")

    @property
    def prefix(self) -> str:
        """What the column `source` of its samples begins with, or is where no metric follows."""
        return self.column.removesuffix("METRIC")


METRIC_SOURCES = (
    SourceKind("prometheus", "Prometheus", "mm2mgr.samples.prometheus", "prometheus:METRIC", past="Prometheus"),
    SourceKind(
        "cruise-control",
        "Cruise Control",
        "mm2mgr.samples.cruise_control",
        "cruise-control",
        declared="its REST API",
        past="Cruise Control's REST",
    ),
    SourceKind(
        "cruise-control-topic",
        "Cruise Control's topic",
        "mm2mgr.throughput.cruise_topic",
        "cruise-control-topic",
        on_spark=True,
    ),
)
"""Best first: of a partition that several sources know, the first counts. Kafka's own offsets are better than any."""
