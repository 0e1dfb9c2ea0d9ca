"""Makes a framework's Bot API calls as calls of chatlanes: journaled, rate limited and fenced.

A call that a framework makes while it handles an update is a call of that update, with the guarantees of `ctx.call`;
outside an update it is sent directly. Raises LeaseLost, ParkUpdate, and NetworkError, which each adapter converts. A
call that was skipped, or whose result was too long to store, returns None; a framework that cannot parse None gets
NoResultError instead (`none_without_result`).
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial, wraps
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

import orjson

from chatlanes.bot.calls.run_calls import Api, Calls
from chatlanes.bot.context import current_or_none, handling
from chatlanes.bot.event_loop import blocking_executor, finished
from chatlanes.telegram import BotApiError, ChatMigrated, NetworkError, TooManyRequests
from chatlanes.telegram.client import BotApi

#: A reference to a file that is uploaded in the same request.
_ATTACHED = re.compile(r'attach://([^"\\\s]+)')


class Answered(NamedTuple):
    """A response of the Bot API."""

    status: int
    content: dict[str, Any]

    @property
    def body(self) -> bytes:
        return orjson.dumps(self.content)

    def check_result(self) -> None:
        """Raises NoResultError."""
        if self.content["ok"] and self.content["result"] is None:
            raise NoResultError


class NoResultError(Exception):
    """The call was made earlier, or perhaps not at all, and has no result."""


def none_without_result(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method of a framework's bot, which may be a coroutine: returns None if it raises NoResultError."""
    if not iscoroutinefunction(method):

        @wraps(method)
        def run(*arguments: Any, **named: Any) -> Any:
            with suppress(NoResultError):
                return method(*arguments, **named)
            return None

        return run

    @wraps(method)
    async def run_soon(*arguments: Any, **named: Any) -> Any:
        with suppress(NoResultError):
            return await method(*arguments, **named)
        return None

    return run_soon


#: Methods that are not sent, because the deployment decides how updates arrive, not the bot.
_NOT_SENT = frozenset({"setwebhook", "deletewebhook"})

log = logging.getLogger(__name__)


@contextmanager
def network_errors_as(made: Callable[[str], Exception]) -> Iterator[None]:
    """Wraps a call. `made` makes the framework's own error from a text."""
    try:
        yield
    except NetworkError as error:
        raise made(str(error)) from error


def call(api: BotApi, method: str, params: dict[str, Any]) -> Answered:
    """Make a call and wait for its response."""
    return _answered(_caller(api), method, params)


@contextmanager
def reserved(api: BotApi, method: str) -> Iterator[Api]:
    """Wraps one call of this method: its place in the journal is reserved, and the update waits for its end. A call
    that begins after its update has ended is made outside the update.
    """
    caller = _caller(api)
    if not isinstance(caller, Calls):
        yield caller
        return
    with caller.life.tracked():
        yield caller.reserved(method)


async def call_soon(caller: Api, method: str, params: dict[str, Any]) -> Answered:
    """Make a reserved call on another thread, without blocking the loop. It ends even if the caller is cancelled."""
    return await finished(blocking_executor().call(partial(_answered, caller, method, params)))


def fetch(api: BotApi, path: str) -> tuple[int, bytes]:
    """Download a file; returns status and body like Telegram's file server, also for a refusal."""
    try:
        return 200, _caller(api).download(path)
    except NetworkError:
        raise
    except BotApiError as error:
        return (refused := _refused(error)).status, refused.body


async def fetch_soon(api: BotApi, path: str) -> tuple[int, bytes]:
    """Like `fetch`, on another thread."""
    status, content = await blocking_executor().call(partial(fetch, api, path))
    return status, content


@contextmanager
def in_series(series: str) -> Iterator[None]:
    """Wraps a framework's error handlers. Their calls are journaled in a series of their own, because the handler may
    make more calls in the next attempt.
    """
    ctx = current_or_none()
    if ctx is None:
        yield
        return
    api = ctx.api
    with handling(replace(ctx, api=api.in_series(series, api.life)) if isinstance(api, Calls) else ctx):
        yield


def file(name: str | None, content: bytes) -> Any:
    """A file parameter with this file name."""
    upload = io.BytesIO(content)
    upload.name = name or "file"
    return upload


def _with_stable_names(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters with uploads named by their positions. Frameworks use random names, which differ in each run, so
    the journal would not recognize the call of an earlier run.
    """
    files = [name for name, value in params.items() if hasattr(value, "read")]
    if not files:
        return params
    names = {name: f"upload{place}" for place, name in enumerate(files)}
    mentioned: set[str] = set()

    def renamed(found: re.Match[str]) -> str:
        mentioned.update({found[1]} & names.keys())
        return f"attach://{names.get(found[1], found[1])}"

    changed = {name: _in_texts(value, partial(_ATTACHED.sub, renamed)) for name, value in params.items()}
    return {names[name] if name in mentioned else name: value for name, value in changed.items()}


def _in_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _in_texts(inner, change) for key, inner in value.items()}
    return [_in_texts(inner, change) for inner in value] if isinstance(value, list | tuple) else value


def _caller(api: BotApi) -> Calls | BotApi:
    ctx = current_or_none()
    return ctx.api if ctx is not None and isinstance(ctx.api, Calls) else api


def _answered(api: Api, method: str, params: dict[str, Any]) -> Answered:
    if method.lower() in _NOT_SENT:
        _warn_not_sent(method)
        return Answered(200, {"ok": True, "result": True})
    try:
        return Answered(200, {"ok": True, "result": api.call(method, **_with_stable_names(params))})
    except NetworkError:
        raise
    except BotApiError as error:
        return _refused(error)


@cache
def _warn_not_sent(method: str) -> None:
    log.warning(
        "the bot's call of %s is not sent and returns True: the poller, or `chatlanes webhook set`, decides how "
        "updates arrive, and updates that the call would drop would be lost",
        method,
    )


def _refused(error: BotApiError) -> Answered:
    code = error.code or 500
    content: dict[str, Any] = {"ok": False, "error_code": code, "description": error.description}
    if isinstance(error, TooManyRequests):
        content["parameters"] = {"retry_after": round(error.retry_after)}
    elif isinstance(error, ChatMigrated):
        content["parameters"] = {"migrate_to_chat_id": error.migrate_to_chat_id}
    return Answered(code, content)
