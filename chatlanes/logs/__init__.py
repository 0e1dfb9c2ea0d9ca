"""Log lines: as text or as JSON (LOG_FORMAT), with the same ids of the update that each is about, and without secrets.

Promises that a line which is written while a handler runs carries its update's ids, whoever writes it, and that no
token of a bot that is served here is in any line. What a bot's own code writes into its lines is its own business.
"""

from chatlanes.logs.ids import Ids, UpdateIds, about
from chatlanes.logs.lines import JsonLines
from chatlanes.logs.redaction import Secrets

__all__ = ["Ids", "JsonLines", "Secrets", "UpdateIds", "about"]
