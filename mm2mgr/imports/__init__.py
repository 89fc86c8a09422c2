"""Turns connectors and mm2.properties that exist into a tree that keeps them as they are, and reports on each key."""
