"""Rows about bots: whole bots, their calls and their sessions."""
