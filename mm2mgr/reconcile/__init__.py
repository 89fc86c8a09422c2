"""Desired against live: read, compare, show, apply. Never touches a connector that another owner, or nobody, marked."""
