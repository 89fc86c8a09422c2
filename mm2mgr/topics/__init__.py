"""Topics: which ones a connector mirrors, their names on the target, and whether two connectors mirror the same one."""
