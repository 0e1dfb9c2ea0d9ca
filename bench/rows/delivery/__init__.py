"""Rows about the way of an update from Telegram to the handler, and to another worker after a death."""
