"""Failover of consumer groups to the target of a flow: internal topics, translated offsets, readiness. Pure."""
