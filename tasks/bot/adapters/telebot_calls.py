"""TeleBot's HTTP, made by us.

Promises that a call of a bot whose token we serve goes through the bridge, with its uploads, and is answered by what
TeleBot takes for Telegram's answer. TeleBot has a place for such a sender (`apihelper.CUSTOM_REQUEST_SENDER`), its
asyncio side has none: there the function that sends is replaced.
"""

from __future__ import annotations

import io
from typing import Any

import requests
from telebot import apihelper, asyncio_helper

from tasks.bot.adapters import bridge
from tasks.bot.client import BotApi
from tasks.bot.errors import NetworkError

_served: dict[str, BotApi] = {}
_original_async = asyncio_helper._process_request


def take_over(token: str, api: BotApi) -> None:
    """Calls with this token are ours from now on."""
    _served[token] = api
    apihelper.CUSTOM_REQUEST_SENDER = _send
    apihelper.FILE_URL = apihelper.FILE_URL or api.url + "/file/bot{0}/{1}"


def take_over_async(token: str, api: BotApi) -> None:
    _served[token] = api
    asyncio_helper._process_request = _process_request
    asyncio_helper.FILE_URL = asyncio_helper.FILE_URL or api.url + "/file/bot{0}/{1}"


def _send(http: str, url: str, params: Any = None, files: Any = None, **how: Any) -> requests.Response:
    """What TeleBot calls in the place of requests.request."""
    address, _, method = url.rpartition("/")
    api = _served.get(address.rpartition("/bot")[2])
    if api is None:
        return requests.request(http, url, params=params, files=files, **how)  # noqa: S113  the timeout is among them
    try:
        answered = bridge.call(api, method, _params(params, files))
    except NetworkError as error:
        raise requests.ConnectionError(str(error)) from error
    response = requests.Response()
    response.status_code, response.raw = answered.status, io.BytesIO(answered.body)
    response.encoding = "utf-8"
    return response


async def _process_request(
    token: str, url: str, method: str = "get", params: Any = None, files: Any = None, **how: Any
) -> Any:
    """In the place of asyncio_helper's own."""
    api = _served.get(token)
    if api is None:
        return await _original_async(token, url, method=method, params=params, files=files, **how)
    try:
        answered = await bridge.call_soon(bridge.reserve(api, url), url, _params(params, files))
    except NetworkError as error:
        raise asyncio_helper.RequestTimeout(str(error)) from error
    if not answered.told["ok"]:
        raise asyncio_helper.ApiTelegramException(url, answered, answered.told)
    return answered.told["result"]


def _params(params: Any, files: Any) -> dict[str, Any]:
    """TeleBot's `timeout` is for HTTP; our own timeouts hold."""
    given = {name: value for name, value in (params or {}).items() if name != "timeout"}
    return given | {name: _file(name, value) for name, value in (files or {}).items()}


def _file(name: str, value: Any) -> Any:
    """TeleBot gives bytes, open files, InputFiles, or one of these in a tuple behind its name."""
    named, content = value if isinstance(value, tuple) else (None, value)
    if hasattr(content, "file") and hasattr(content, "file_name"):
        named, content = content.file_name or named, content.file
    if isinstance(content, str):
        return content
    if hasattr(content, "read"):
        named, content = named or getattr(content, "name", None), content.read()
    return bridge.file(named or name, content.encode() if isinstance(content, str) else bytes(content))
