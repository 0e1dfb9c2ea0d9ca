"""Keeps bot tokens out of texts: they are a part of every URL of the Bot API, and libraries like to tell URLs.

Promises nothing about tokens that do not stand in a URL or are not handed in.
"""

import logging
import re

_IN_URL = re.compile(r"/bot\d+(:|%3A)[^/?\s'\"]+", re.IGNORECASE)

#: Everyone in urllib3 who logs URLs, most of them at level DEBUG.
_TALKERS = ("connection", "connectionpool", "poolmanager", "response", "util.retry")


def without_token(text: str, token: str = "") -> str:
    """The text without this token, and without any that stands in a URL."""
    hidden = text.replace(token, "<token>") if token else text
    return _IN_URL.sub("/bot<token>", hidden)


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
