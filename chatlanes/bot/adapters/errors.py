"""Errors and warnings that are common to all adapters."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from celery_lanes.errors import Interrupted
from chatlanes.settings.imports import ImportPathError
from chatlanes.telegram.client import BotApi

T = TypeVar("T")

log = logging.getLogger(__name__)

#: The errors of the current update's handlers, in frameworks that only log them.
_failures: ContextVar[list[Exception]] = ContextVar("failures")

#: The default server of every framework.
PUBLIC_API = "https://api.telegram.org"


class UnreadableUpdateError(Exception):
    """The framework cannot parse the update."""


def is_interruption(error: object) -> bool:
    """True for the end of a run by a newer update, which is not a failure: a bot's error handlers do not get it."""
    return isinstance(error, Interrupted)


class PermanentError(Exception):
    """An error that a retry does not fix: the update is buried immediately."""


@contextmanager
def having(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Wraps code in which the variable has this value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def raising_failures() -> Iterator[None]:
    """Wraps the handling of one update. Raises the first error that was noted."""
    failures: list[Exception] = []
    with having(_failures, failures):
        yield
    if failures:
        raise failures[0]


def note_failure(error: Exception) -> None:
    """Note an error of a handler of the current update, which no error handler of the bot has handled."""
    if (failures := _failures.get(None)) is not None:
        failures.append(error)


def check_token(token: str, api: BotApi, label: str) -> None:
    """Raises ImportPathError if the bot's token differs from BOT_TOKEN. Without a BOT_TOKEN any token is accepted."""
    if not (api.has_token("") or api.has_token(token)):
        raise ImportPathError(
            f"{label} was created with another token than that of its settings: use the same for both, as in "
            'os.environ["BOT_TOKEN"]; for an added bot, name a function or an aiogram Dispatcher, which have no token.'
        )


def warn_of_address(own: str, api: BotApi) -> None:
    """Warn if the bot is configured for another server: its calls go to BOT_API_URL."""
    if own not in (PUBLIC_API, api.url):
        log.warning("the server that the bot sets, %s, is not used: set BOT_API_URL instead", own)


def warn_of_proxy() -> None:
    log.warning("the proxy that the bot sets is not used: set HTTPS_PROXY instead")
