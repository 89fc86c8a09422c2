"""Regenerates `mm2mgr/truth/keys.json` from Kafka's real jars: `python -m tools.kafka_keys.generate` (needs Java and the network)."""
