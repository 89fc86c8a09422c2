"""Asks clusters: `questions` are values, `read` answers them, a `snapshot` holds the answers, also as a file."""
