"""A framework's Bot API calls made as ours (journaled, rate limited, fenced), and answered as Telegram would.

Guarantees that a call which a framework makes while it handles an update is a call of that update, with the guarantees
of `ctx.call`; one outside of any update is sent directly. Raises what is not an answer of Telegram: LeaseLost,
ParkUpdate, and NetworkError, which each adapter turns into its framework's own.
"""

from __future__ import annotations

import asyncio
import io
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import orjson

from chatlanes.bot.calls.run_calls import Calls
from chatlanes.bot.context import Api
from chatlanes.bot.current import current, handling
from chatlanes.lanes.worker.executor import blocking_executor
from chatlanes.telegram import BotApi, BotApiError, ChatMigrated, NetworkError, TooManyRequests

#: Where a parameter names a file that is uploaded beside it.
_ATTACHED = re.compile(r'attach://([^"\\\s]+)')


class Answered(NamedTuple):
    """An HTTP answer of the Bot API."""

    status: int
    told: dict[str, Any]

    @property
    def body(self) -> bytes:
        return orjson.dumps(self.told)


#: How updates arrive is not a bot's own business here.
_NOT_SENT = frozenset({"setwebhook", "deletewebhook"})

log = logging.getLogger(__name__)


def call(api: BotApi, method: str, params: dict[str, Any]) -> Answered:
    """Make a call; wait for its answer."""
    return _answered(_caller(api), method, params)


@contextmanager
def reserved(api: BotApi, method: str) -> Iterator[Api]:
    """Around one call of this method. From now on it has its place among the update's calls, and the update waits for
    it. A call that begins when its update has ended is made as one outside of any.
    """
    caller = _caller(api)
    if not isinstance(caller, Calls):
        yield caller
        return
    with caller.life.tracked():
        yield caller.reserved(method)


async def call_soon(caller: Api, method: str, params: dict[str, Any]) -> Answered:
    """Make a call that was reserved, on another thread, so that the loop goes on.

    One who is cancelled waits for its end all the same: else the update could run again beside it, and make it twice.
    """
    made = blocking_executor().call(partial(_answered, caller, method, params))
    try:
        return await asyncio.shield(made)
    except asyncio.CancelledError:
        while not made.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([made])
        raise


def fetch(api: BotApi, path: str) -> tuple[int, bytes]:
    """The content of a file, or the refusal: what Telegram's file server answers."""
    try:
        return 200, _caller(api).download(path)
    except NetworkError:
        raise
    except BotApiError as error:
        return (refused := _refused(error)).status, refused.body


async def fetch_soon(api: BotApi, path: str) -> tuple[int, bytes]:
    """The same, on another thread."""
    status, content = await blocking_executor().call(partial(fetch, api, path))
    return status, content


@contextmanager
def beside(series: str) -> Iterator[None]:
    """Around what a framework does about a failure. Its calls have places of their own in the journal: the handler may
    get further the next time.
    """
    try:
        ctx = current()
    except LookupError:
        yield
        return
    api = ctx.api
    with handling(replace(ctx, api=api.beside(series, api.life)) if isinstance(api, Calls) else ctx):
        yield


def file(name: str | None, content: bytes) -> Any:
    """A parameter that is uploaded under this name."""
    upload = io.BytesIO(content)
    upload.name = name or "file"
    return upload


def _alike(params: dict[str, Any]) -> dict[str, Any]:
    """Uploads named by their places: frameworks give them another random name in each run, and a call of an earlier
    run would not be known again.
    """
    files = [name for name, value in params.items() if hasattr(value, "read")]
    if not files:
        return params
    names = {name: f"upload{place}" for place, name in enumerate(files)}
    mentioned: set[str] = set()

    def renamed(found: re.Match[str]) -> str:
        mentioned.update({found[1]} & names.keys())
        return f"attach://{names.get(found[1], found[1])}"

    told = {name: _in_texts(value, partial(_ATTACHED.sub, renamed)) for name, value in params.items()}
    return {names[name] if name in mentioned else name: value for name, value in told.items()}


def _in_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _in_texts(inner, change) for key, inner in value.items()}
    return [_in_texts(inner, change) for inner in value] if isinstance(value, list | tuple) else value


def _caller(api: BotApi) -> Calls | BotApi:
    try:
        found = current().api
    except LookupError:
        return api
    return found if isinstance(found, Calls) else api


def _answered(api: Api, method: str, params: dict[str, Any]) -> Answered:
    if method.lower() in _NOT_SENT:
        _warn_not_sent(method)
        return Answered(200, {"ok": True, "result": True})
    try:
        return Answered(200, {"ok": True, "result": api.call(method, **_alike(params))})
    except NetworkError:
        raise
    except BotApiError as error:
        return _refused(error)


@cache
def _warn_not_sent(method: str) -> None:
    log.warning(
        "the bot's %s is not sent, and answered True: the poller, or `chatlanes webhook set`, decides how "
        "updates arrive, and what a bot drops there would be lost",
        method,
    )


def _refused(error: BotApiError) -> Answered:
    code = error.code or 500
    told: dict[str, Any] = {"ok": False, "error_code": code, "description": error.description}
    if isinstance(error, TooManyRequests):
        told["parameters"] = {"retry_after": round(error.retry_after)}
    elif isinstance(error, ChatMigrated):
        told["parameters"] = {"migrate_to_chat_id": error.migrate_to_chat_id}
    return Answered(code, told)
