"""The Bot API: client, errors, files and flood control.

Importing this package loads only what needs neither `requests` nor Redis; `client`, `http_client` and `flood` are
imported by name.
"""

from chatlanes.telegram.errors import BotApiError, ChatMigrated, NetworkError, NotModified, TooManyRequests
