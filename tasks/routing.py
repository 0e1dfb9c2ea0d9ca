"""`from tasks.routing import keys_of` from a clone."""

from chatlanes.updates.routing import keys_of

__all__ = ["keys_of"]
