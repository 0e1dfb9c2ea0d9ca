"""Errors and warnings about a framework's bot, one sentence each."""

from __future__ import annotations

import logging

from chatlanes.settings.imports import BotImportError
from chatlanes.telegram.client import BotApi

log = logging.getLogger(__name__)

#: Where every framework calls when it is told nothing.
PUBLIC_API = "https://api.telegram.org"


class UnreadableUpdateError(Exception):
    """The framework cannot parse it as an update."""


class PermanentError(Exception):
    """No retry fixes it: its update is buried at once."""


def check_token(token: str, api: BotApi, said: str) -> None:
    """Raises BotImportError for a bot that would answer in another one's name. Without a token of ours any will do."""
    if not (api.has_token("") or api.has_token(token)):
        raise BotImportError(
            f"{said} was made with another token than BOT_TOKEN: give both the same, as in "
            'TeleBot(os.environ["BOT_TOKEN"]).'
        )


def warn_of_address(own: str, api: BotApi) -> None:
    """A bot's own server is not called: all its calls are ours."""
    if own not in (PUBLIC_API, api.url):
        log.warning("the bot's own server %s is not used: set BOT_API_URL to it", own)


def warn_of_proxy() -> None:
    log.warning("the bot's own proxy is not used: set HTTPS_PROXY")
