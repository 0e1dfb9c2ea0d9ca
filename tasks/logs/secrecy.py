"""Keeps bot tokens out of texts: they are a part of every URL of the Bot API, and libraries like to tell URLs.

Promises to cut out what is handed in, as it is and as it stands in a URL, and any other token that stands in a URL of
the Bot API.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from urllib.parse import quote

from settings import Settings

CUT = "<token>"
#: A shorter webhook secret is likely to be a part of other words.
_SHORTEST_SECRET = 8

_IN_URL = re.compile(r"/bot\d+(:|%3A)[^/?\s'\"]+", re.IGNORECASE)

#: Everyone in urllib3 who logs URLs, most of them at level DEBUG.
_TALKERS = ("connection", "connectionpool", "poolmanager", "response", "util.retry")


class Secrets:
    """What must be in no line and in no trace of this process."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets for form in (secret, quote(secret), quote(secret, safe=""))}
        self._forms = sorted(forms, key=len, reverse=True)

    @classmethod
    def of(cls, settings: Settings) -> Secrets:
        """Tokens and webhook secrets of every bot, as far as they are there."""
        tokens = [bot.bot_token.get_secret_value() for bot in settings.served if bot.bot_token]
        secrets = [bot.webhook_secret.get_secret_value() for bot in settings.served if bot.webhook_secret]
        return cls([*tokens, *(secret for secret in secrets if len(secret) >= _SHORTEST_SECRET)])

    def cut(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, CUT)
        return _IN_URL.sub(f"/bot{CUT}", text) if "/bot" in text else text


def without_token(text: str, token: str = "") -> str:
    """The text without this token, and without any that stands in a URL."""
    return Secrets([token] if token else []).cut(text)


def keep_tokens_out_of_logs() -> None:
    """Once or often, in each process that calls the Bot API."""
    for talker in _TALKERS:
        logging.getLogger(f"urllib3.{talker}").addFilter(_hide_token)


def _hide_token(record: logging.LogRecord) -> bool:
    told = record.getMessage()
    hidden = without_token(told)
    if hidden != told:
        record.msg, record.args = hidden, ()
    return True
