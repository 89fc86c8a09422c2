"""Live clusters: how they are reached."""
