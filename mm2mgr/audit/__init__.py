"""The audit: whether every record of a source log is in its mirrored log, once, unaltered and in order."""
