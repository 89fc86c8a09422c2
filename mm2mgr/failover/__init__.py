"""Failover of consumer groups to the target of a flow: internal topics of MirrorMaker read, offsets translated. Pure."""
