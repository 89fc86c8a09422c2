"""One Spark session for all tests of this folder: starting one costs seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from mm2mgr.sandbox.runtime import find_java, spark_java_home
from mm2mgr.throughput.spark_session import end, session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    started = session(spark_java_home(find_java()))
    yield started
    end(started)
