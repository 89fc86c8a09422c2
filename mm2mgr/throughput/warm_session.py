"""The Spark session of a process that stays. Nothing of Spark is imported before the first job needs it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class WarmSpark:
    """A session that stays between jobs, of several threads too: started for the first, and anew for the next after it
    failed."""

    def __init__(self, log_file: Path | None = None, spark: SparkSession | None = None) -> None:
        self._log_file, self._spark = log_file, spark
        self._lock = threading.Lock()

    def session(self, java_home: Path | None) -> SparkSession:
        """Return the session, as the active one of this thread; `java_home` is that of a local one."""
        from mm2mgr.throughput.spark_session import activate, end, is_running, session

        with self._lock:
            if self._spark is not None and not is_running(self._spark):
                end(self._spark)
                self._spark = None
            self._spark = self._spark or session(java_home, self._log_file)
            activate(self._spark)
            return self._spark

    def close(self) -> None:
        """End the session, if one was started."""
        with self._lock:
            if self._spark is not None:
                from mm2mgr.throughput.spark_session import end

                end(self._spark)
                self._spark = None
