"""Recorded answers of real clusters, one file for each Kafka version, and the tree that was applied to them."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "answers"
TREE = FOLDER / "tree.yaml"
VERSIONS = ("3.6.2", "3.9.2", "4.0.2", "4.3.1")
