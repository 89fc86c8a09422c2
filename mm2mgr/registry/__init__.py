"""Schema registries: ids in records, schemas that can be compared, and two REST APIs, read only."""
