"""Readers of files that other tools write: connector configs, mm2.properties, Strimzi resources. They judge nothing."""
