"""Makes AsyncTeleBot's calls through the bridge.

The guarantees are those of calls.py for TeleBot. telebot has no setting for this, so the functions of `asyncio_helper`
that send and download are replaced, for all bots of a process.
"""

from __future__ import annotations

from typing import Any

from telebot import asyncio_helper

from chatlanes.bot.adapters import bridge
from chatlanes.bot.adapters.telebot.calls import params_of
from chatlanes.telegram import NetworkError
from chatlanes.telegram.client import BotApi

_served: dict[str, BotApi] = {}
_own_request = asyncio_helper._process_request
_own_download = asyncio_helper.download_file


def take_over(token: str, api: BotApi) -> None:
    """From now on, calls with this token go through the bridge."""
    _served[token] = api
    asyncio_helper._process_request = _process_request
    asyncio_helper.download_file = _download


async def _process_request(
    token: str, url: str, method: str = "get", params: Any = None, files: Any = None, **how: Any
) -> Any:
    """Replaces asyncio_helper._process_request. `url` is the method of the Bot API."""
    api = _served.get(token)
    if api is None:
        return await _own_request(token, url, method=method, params=params, files=files, **how)
    try:
        with bridge.reserved(api, url) as caller:
            answered = await bridge.call_soon(caller, url, params_of(params, files))
    except NetworkError as error:
        raise asyncio_helper.RequestTimeout(str(error)) from error
    if not answered.content["ok"]:
        raise asyncio_helper.ApiTelegramException(url, answered, answered.content)
    return answered.content["result"]


async def _download(token: str, file_path: str) -> bytes:
    """Replaces asyncio_helper.download_file. Raises the same errors, with other messages."""
    if token not in _served:
        return bytes(await _own_download(token, file_path))
    try:
        status, content = await bridge.fetch_soon(_served[token], file_path)
    except NetworkError as error:
        raise asyncio_helper.RequestTimeout(str(error)) from error
    if status != 200:
        raise asyncio_helper.ApiException(content.decode(), "Download file", None)
    return content
