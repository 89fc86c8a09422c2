"""Which engine does the work of the tables: Spark, or this process. It imports no PySpark and starts no JVM."""

from __future__ import annotations

import os


def under_spark_submit() -> bool:
    """Say whether spark-submit started this process: it hands over the port of a JVM that it configured."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
