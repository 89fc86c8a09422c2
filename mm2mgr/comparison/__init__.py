"""A running connector beside the declared one: what differs, whose it is, which change was begun. Pure."""
