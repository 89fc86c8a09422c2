"""Desired against live: the plan, judged. Pure: it says what it lacks and is told. Never touches what is not owned."""
