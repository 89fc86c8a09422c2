"""From samples to throughput: a PySpark job, and its result read without a JVM.

`rates` is cheap to import; `table` loads pyarrow; `job` and `transforms` load PySpark.
"""
