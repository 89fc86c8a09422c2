"""Kafka clusters read through librdkafka; the only folder that imports confluent_kafka.

`access` (settings, no client), `wire` and `quotas` (sockets) are cheap to import; `client`, `inspection` and
`records` load the native library.
"""
