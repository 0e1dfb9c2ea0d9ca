"""HTTP to one server, as lean as a Bot API call needs it: kept connections, a request, its answer.

Promises TLS with certificates that are checked, the proxies that the environment names, and no second attempt: whoever
asks is told whether anything was sent. Follows no redirect, keeps no cookie, reads no ~/.netrc. Knows nothing of bots.
"""

from tasks.bot.http.connections import Asked, Connections, UnreachedError
from tasks.bot.http.exchange import BrokenError, Incoming

__all__ = ["Asked", "BrokenError", "Connections", "Incoming", "UnreachedError"]
