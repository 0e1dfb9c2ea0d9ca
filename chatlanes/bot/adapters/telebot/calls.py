"""Makes TeleBot's calls through the bridge.

Calls of a served bot, with uploads, and its downloads go through the bridge; TeleBot gets Telegram-shaped responses.
The functions are replaced for all bots of a process (`apihelper.CUSTOM_REQUEST_SENDER` is TeleBot's setting for this);
calls with other tokens are sent unchanged.
"""

from __future__ import annotations

import io
import re
from typing import Any

import requests
from telebot import apihelper

from chatlanes.bot.adapters import bridge
from chatlanes.bot.adapters.telebot import server_address
from chatlanes.telegram import NetworkError
from chatlanes.telegram.client import BotApi

#: The token in `…/bot<token>/<method>`; in Telegram's test environment it is `…/bot<token>/test/<method>`.
_TOKEN = re.compile(r"/bot([^/]+)/(?:.*/)?(\w+)$")

_served: dict[str, BotApi] = {}
_own_sender: Any = None
_own_download = apihelper.download_file


def take_over(token: str, api: BotApi) -> None:
    """From now on, calls with this token go through the bridge."""
    global _own_sender
    _served[token] = api
    if has_custom_sender():
        _own_sender = apihelper.CUSTOM_REQUEST_SENDER
    apihelper.CUSTOM_REQUEST_SENDER = _send
    apihelper.download_file = _download


def has_custom_sender() -> bool:
    """True if a bot of this process has set its own sender."""
    return apihelper.CUSTOM_REQUEST_SENDER not in (None, _send)


def goes_to(api: BotApi) -> bool:
    """True if TeleBot is configured for the same server as `api`."""
    return server_address.is_unset(apihelper.API_URL) or apihelper.API_URL.startswith(f"{api.url}/")


def _send(http: str, url: str, params: Any = None, files: Any = None, **how: Any) -> requests.Response:
    """TeleBot calls this instead of requests.request."""
    found = _TOKEN.search(url)
    api = _served.get(found[1]) if found else None
    if api is None or found is None:
        send = _own_sender or requests.request
        return send(http, url, params=params, files=files, **how)
    try:
        answered = bridge.call(api, found[2], params_of(params, files))
    except NetworkError as error:
        raise requests.ConnectionError(str(error)) from error
    response = requests.Response()
    response.status_code, response.raw = answered.status, io.BytesIO(answered.body)
    response.encoding = "utf-8"
    return response


def _download(token: str, file_path: str) -> bytes:
    """Replaces apihelper.download_file. Raises the same errors, with other messages."""
    if token not in _served:
        return bytes(_own_download(token, file_path))
    try:
        status, content = bridge.fetch(_served[token], file_path)
    except NetworkError as error:
        raise requests.ConnectionError(str(error)) from error
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
