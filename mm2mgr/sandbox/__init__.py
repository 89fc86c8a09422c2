"""Real Kafka brokers and Connect workers on this machine, for tests, the demo and a first hour.

In: a layout of names; out: running JVMs and where they listen. It downloads by lock file, stops only what it started,
and must not be imported by anything that runs against a user's own clusters.
"""
