"""What an import makes of configs of others: proof that a tree gives each client what it got. Pure."""
