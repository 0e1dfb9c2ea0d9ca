"""Removes secrets from texts: bot tokens, webhook secrets, the password of Redis.

Guarantees to remove the given secrets, verbatim and as URLs, JSON and Python write them, any other token in a Bot API
URL, and any password in a Redis URL.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from chatlanes.settings import Settings, secret_from

CUT = "<token>"
#: A shorter webhook secret or password is likely to be a part of other words.
_SHORTEST_SECRET, _SHORTEST_PASSWORD = 8, 6

_IN_URL = re.compile(r"/bot\d+(:|%3A)[^/?\s'\"]+", re.IGNORECASE)
#: Not the example that our errors give: redis://:password@host:port/0.
_IN_REDIS_URL = re.compile(r"\b((?:rediss?|sentinel)://[^:/@\s]*:)(?!password@host:port)([^@\s]+?)@", re.IGNORECASE)

#: The loggers of urllib3 that log URLs, most of them at level DEBUG.
_URL_LOGGERS = ("connection", "connectionpool", "poolmanager", "response", "util.retry")


#: Tokens and webhook secrets of bots that were added while this process ran. There may be thousands, so a text is
#: searched for what looks like one.
_LEARNED: set[str] = set()
_LIKELY = re.compile(r"\d+(?::|%3A)[\w-]+|\b[0-9a-f]{64}\b", re.IGNORECASE)


def learn(token: str) -> None:
    """From now on no text of this process contains this token, or the webhook secret that is derived from it."""
    _LEARNED.update((token, secret_from(token)))


def _cut_learned(found: re.Match[str]) -> str:
    return CUT if unquote(found[0]) in _LEARNED else found[0]


class Secrets:
    """The secrets that no log line and no trace of this process may contain."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets if secret for form in _forms_of(secret)}
        self._forms = sorted(forms, key=len, reverse=True)

    @classmethod
    def of(cls, settings: Settings) -> Secrets:
        """Tokens and webhook secrets of every bot, derived ones included, BOTS_KEY, and the password of Redis."""
        tokens = [bot.bot_token.get_secret_value() for bot in settings.served if bot.bot_token]
        secrets = [bot.webhook_secret.get_secret_value() for bot in settings.served if bot.webhook_secret]
        keys = settings.bots_key.get_secret_value().split(",") if settings.bots_key else []
        passwords = [unquote(password) for _, password in _IN_REDIS_URL.findall(settings.redis_url)]
        return cls(
            [
                *tokens,
                *map(secret_from, tokens),
                *keys,
                *(secret for secret in secrets if len(secret) >= _SHORTEST_SECRET),
                *(password for password in passwords if len(password) >= _SHORTEST_PASSWORD),
            ]
        )

    def cut(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, CUT)
        if _LEARNED:
            text = _LIKELY.sub(_cut_learned, text)
        if "/bot" in text:
            text = _IN_URL.sub(f"/bot{CUT}", text)
        return _IN_REDIS_URL.sub(rf"\1{CUT}@", text) if "://" in text and "@" in text else text

    def head(self, text: str, limit: int) -> str:
        """The first `limit` characters, without secrets and without the beginning of one."""
        text = text[:limit]
        longest = max((_overlap(text, form, len(form) - 1) for form in (*self._forms, *_LEARNED)), default=0)
        return self.cut(text[: len(text) - longest])

    def tail(self, text: str, limit: int) -> str:
        """The last `limit` characters, without secrets and without the end of one."""
        text = text[-limit:]
        longest = max((_overlap(form, text, len(form) - 1) for form in (*self._forms, *_LEARNED)), default=0)
        return self.cut(text[longest:])


def _forms_of(secret: str) -> Iterable[str]:
    return secret, quote(secret), quote(secret, safe=""), json.dumps(secret)[1:-1], repr(secret)[1:-1]


def _overlap(first: str, second: str, most: int) -> int:
    """The length of the longest end of the first, at most `most`, that the second begins with."""
    longest = min(len(first), len(second), most)
    return next((length for length in range(longest, 0, -1) if first.endswith(second[:length])), 0)


def without_token(text: str, token: str = "") -> str:
    """The text without this token, and without any token in a URL."""
    return Secrets([token] if token else []).cut(text)


def keep_tokens_out_of_logs() -> None:
    """Called in each process that calls the Bot API; repeated calls are harmless."""
    for name in _URL_LOGGERS:
        logging.getLogger(f"urllib3.{name}").addFilter(_hide_token)


def _hide_token(record: logging.LogRecord) -> bool:
    told = record.getMessage()
    hidden = without_token(told)
    if hidden != told:
        record.msg, record.args = hidden, ()
    return True
