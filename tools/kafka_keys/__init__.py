"""Regenerates from Kafka's real jars what is known of its lines (needs Java and the network).

`python -m tools.kafka_keys.generate` writes `mm2mgr/truth/keys.json`, `python -m tools.kafka_keys.servers` writes
`mm2mgr/truth/servers.json`, and `python -m tools.kafka_keys.reached` writes `tests/truth/reached.json`, against which the
reach table is tested.
"""
