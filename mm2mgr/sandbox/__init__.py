"""Real Kafka brokers and Connect workers on this machine, for tests, the demo and first steps.

It downloads jars by lock file, stops only processes that it started, and is never imported by code that runs against a
user's own clusters.
"""
