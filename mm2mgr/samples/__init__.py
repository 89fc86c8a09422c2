"""Partition samples: where they come from, and the store of Parquet files that keeps them.

`schema` and `batch` are cheap to import; `store` loads pyarrow and `offsets` loads the Kafka client.
"""
