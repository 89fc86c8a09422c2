"""Topics: what a connector takes, what they are called on the other side, and whether two connectors take the same one."""
