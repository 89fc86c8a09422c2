"""Schema registries: the ids that records carry, schemas in a form that can be compared, and two REST APIs, read only."""
