"""Reads everything that sizing needs, once and before anything is judged: rates, topics, assignments, placement, task
capacity.
"""
