"""The balanced assignment: which task mirrors which partition, planned from rates; pure, and public API
(docs/reference/library.md)."""
