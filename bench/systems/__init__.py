"""The compared systems: how each gets a backlog, and which workers process it."""
