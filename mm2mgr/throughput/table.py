"""The throughput result on disk: one Parquet file, read with pyarrow so that nothing but the job starts a JVM."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mm2mgr.errors import Mm2mgrError
from mm2mgr.throughput.rates import PartitionRate

RESULT_FILE = "throughput.parquet"


def read_throughput(directory: Path) -> list[PartitionRate]:
    """Return the result of the last finished job, ordered by cluster, topic and partition."""
    path = directory / RESULT_FILE
    if not path.is_file():
        raise Mm2mgrError(f"{directory} holds no throughput result", hint="run `mm2mgr throughput` first")
    try:
        columns = list(PartitionRate.__dataclass_fields__)
        rows = pq.read_table(path, columns=columns, partitioning=None).to_pylist()
        rates = [PartitionRate(**row) for row in rows]
    except (OSError, pa.ArrowException, TypeError) as error:
        hint = "run `mm2mgr throughput` again; it replaces the result"
        raise Mm2mgrError(f"{path} is not a readable throughput result", hint=hint) from error
    return sorted(rates, key=lambda rate: (rate.cluster, rate.topic, rate.partition))


def count_rows(path: Path) -> int:
    """Return the number of rows of one Parquet file from its footer."""
    return int(pq.read_metadata(path).num_rows)
