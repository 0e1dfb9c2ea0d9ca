"""pyTelegramBotAPI: `BOT=mybot:bot` names a TeleBot; for an AsyncTeleBot see async_telebot.py.

Each update is handled completely on the thread that runs it; states and next steps are stored with it in Redis. An
error that the bot's exception handler does not handle fails the attempt; telebot itself would only log it. Calls of a
served bot and its downloads go through the bridge; those with other tokens are sent unchanged.
"""

from __future__ import annotations

import io
import logging
import re
from typing import Any

import requests
from telebot import apihelper
from telebot.handler_backends import FileHandlerBackend, MemoryHandlerBackend
from telebot.storage import StateMemoryStorage, StatePickleStorage
from telebot.types import Update

from chatlanes.bot.adapters import bridge
from chatlanes.bot.adapters.collected import newest
from chatlanes.bot.adapters.errors import check_token, is_interruption, note_failure, raising_failures
from chatlanes.bot.adapters.imports import is_unset
from chatlanes.bot.adapters.telebot_state import NextSteps, States
from chatlanes.bot.bot import Bot
from chatlanes.bot.context import Context
from chatlanes.telegram.client import BotApi

log = logging.getLogger(__name__)

#: Storages that are local to a process, or that processes would overwrite for each other.
_LOCAL_STATES = (StateMemoryStorage, StatePickleStorage)
_LOCAL_STEPS = (MemoryHandlerBackend, FileHandlerBackend)

#: The token in `…/bot<token>/<method>`; in Telegram's test environment it is `…/bot<token>/test/<method>`.
_TOKEN = re.compile(r"/bot([^/]+)/(?:.*/)?(\w+)$")

#: Methods that return lists, which telebot cannot parse from None, and their names in a telebot.
_LISTS = {
    "copyMessages": "copy_messages",
    "forwardMessages": "forward_messages",
    "sendMediaGroup": "send_media_group",
}

#: The bots of this process whose calls go through the bridge, by their tokens.
served: dict[str, BotApi] = {}
_own_sender: Any = None
_own_download = apihelper.download_file


def bot_of(found: Any, api: BotApi, label: str) -> Bot:
    """A Bot for the telebot. Raises ImportPathError if its token differs from BOT_TOKEN."""
    check(found, api, label)
    _take_over(found.token, api)
    return_none_for_lists(found)
    found.exception_handler = ErrorCollector(found.exception_handler)
    if found.threaded:
        found.threaded = False
        found.worker_pool.close()
    if isinstance(found.current_states, _LOCAL_STATES):
        found.current_states = States()
    if isinstance(found.next_step_backend, _LOCAL_STEPS):
        found.next_step_backend = NextSteps("next")
    if isinstance(found.reply_backend, _LOCAL_STEPS):
        found.reply_backend = NextSteps("reply")

    def handle(ctx: Context) -> None:
        with raising_failures():
            # One at a time, because telebot sorts a batch by kind.
            found.process_new_updates([Update.de_json(newest(ctx.updates))])

    return Bot(handle)


def check(found: Any, api: BotApi, label: str) -> None:
    """Raises ImportPathError if the token differs from BOT_TOKEN. Warns of options that are ignored."""
    check_token(found.token, api, label)
    if api.has_token(""):  # without a token the bot is only checked
        return
    own_address = not (is_unset(apihelper.API_URL) or apihelper.API_URL.startswith(f"{api.url}/"))
    backends = (getattr(found, name, None) for name in ("next_step_backend", "reply_backend"))
    ignored = {
        f"apihelper.API_URL (calls go to BOT_API_URL, {api.url})": own_address,
        "apihelper.proxy (set HTTPS_PROXY)": apihelper.proxy is not None,
        "apihelper.session": apihelper.session is not None,
        "apihelper.CUSTOM_REQUEST_SENDER": _has_custom_sender(),
        "next steps loaded from a file": any(
            isinstance(each, FileHandlerBackend) and each.handlers for each in backends
        ),
    }
    if any(ignored.values()):
        options = "; ".join(option for option, is_set in ignored.items() if is_set)
        log.warning("%s: these options are ignored (docs/migrate/pytelegrambotapi.md): %s", label, options)


def _take_over(token: str, api: BotApi) -> None:
    """From now on, calls with this token go through the bridge. TeleBot's setting for this is of all its bots."""
    global _own_sender
    served[token] = api
    if _has_custom_sender():
        _own_sender = apihelper.CUSTOM_REQUEST_SENDER
    apihelper.CUSTOM_REQUEST_SENDER = _send
    apihelper.download_file = _download


def return_none_for_lists(bot: Any) -> None:
    """Methods of the bot that return lists return None for a call without a result, as the others do."""
    for name in _LISTS.values():
        setattr(bot, name, bridge.none_without_result(getattr(bot, name)))


def check_list(method: str, answered: bridge.Answered) -> None:
    """Raises NoResultError."""
    if method in _LISTS:
        answered.check_result()


def _has_custom_sender() -> bool:
    """True if a bot of this process has set its own sender."""
    return apihelper.CUSTOM_REQUEST_SENDER not in (None, _send)


def _send(http: str, url: str, params: Any = None, files: Any = None, **how: Any) -> requests.Response:
    """TeleBot calls this instead of requests.request."""
    found = _TOKEN.search(url)
    api = served.get(found[1]) if found else None
    if api is None or found is None:
        send = _own_sender or requests.request
        return send(http, url, params=params, files=files, **how)
    with bridge.network_errors_as(requests.ConnectionError):
        answered = bridge.call(api, found[2], params_of(params, files))
    check_list(found[2], answered)
    response = requests.Response()
    response.status_code, response.raw = answered.status, io.BytesIO(answered.body)
    response.encoding = "utf-8"
    return response


def _download(token: str, file_path: str) -> bytes:
    """Replaces apihelper.download_file. Raises the same errors, with other messages."""
    if token not in served:
        return bytes(_own_download(token, file_path))
    with bridge.network_errors_as(requests.ConnectionError):
        status, content = bridge.fetch(served[token], file_path)
    if status != 200:
        raise apihelper.ApiException(content.decode(), "Download file", None)
    return content


def params_of(params: Any, files: Any) -> dict[str, Any]:
    """The parameters of a call. TeleBot's `timeout` is dropped: it is for HTTP, and BotApi's timeouts apply."""
    given = {name: value for name, value in (params or {}).items() if name != "timeout"}
    return given | {name: _file(name, value) for name, value in (files or {}).items()}


def _file(name: str, value: Any) -> Any:
    """A file parameter. TeleBot passes bytes, open files, InputFiles, or a tuple of a name and one of these."""
    named, content = value if isinstance(value, tuple) else (None, value)
    if hasattr(content, "file") and hasattr(content, "file_name"):
        named, content = content.file_name or named, content.file
    if isinstance(content, str):
        return content
    if hasattr(content, "read"):
        named, content = named or getattr(content, "name", None), content.read()
    return bridge.file(named or name, content.encode() if isinstance(content, str) else bytes(content))


class ErrorCollector:
    """The exception handler of a telebot, which calls the bot's own one. The calls of that one are journaled in a
    series of their own.
    """

    def __init__(self, own: Any) -> None:
        self._own = own

    def handle(self, exception: Exception) -> bool:
        with bridge.in_series("error/"):
            is_handled = self._own is not None and not is_interruption(exception) and self._own.handle(exception)
        return _noted(exception, is_handled)


class AsyncErrorCollector(ErrorCollector):
    """The same for an AsyncTeleBot whose exception handler has an `async def handle`."""

    async def handle(self, exception: Exception) -> bool:  # type: ignore[override]
        with bridge.in_series("error/"):
            is_handled = not is_interruption(exception) and await self._own.handle(exception)
        return _noted(exception, is_handled)


def _noted(exception: Exception, is_handled: Any) -> bool:
    if not is_handled:
        note_failure(exception)
    return bool(is_handled)
