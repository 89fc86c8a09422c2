"""Compares what Kafka's own classes refuse with what lint calls an error (needs Java and, the first time, the network).

`python -m tools.kafka_refusals.compare` draws configs, asks Kafka's classes of each line (`Refusals.java`) and lint's rules,
and prints where the two differ.
"""
