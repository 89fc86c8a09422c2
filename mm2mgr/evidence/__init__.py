"""Reads all that sizing needs, once and before judging: rates, topics, assignments, placement, task capacity."""
