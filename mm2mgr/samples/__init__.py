"""Partition samples: read from Kafka at an interval, kept as Parquet files that only ever grow in number.

`schema` is cheap to import; `store` loads pyarrow and `offsets` loads the Kafka client.
"""
