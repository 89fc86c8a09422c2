"""Desired against live: read, compare, show, apply. Connectors without this owner's mark are never touched."""
