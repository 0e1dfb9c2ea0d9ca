"""python-telegram-bot's HTTP, made by us: a request in the place of the bot's own.

Promises that every call of a method goes through the bridge, uploads included. Downloads of files are still made by the
bot's own request, and its timeouts are only theirs.
"""

from __future__ import annotations

from typing import Any

from telegram.error import NetworkError as PtbNetworkError
from telegram.request import BaseRequest, RequestData

from tasks.bot.adapters import bridge
from tasks.bot.client import BotApi
from tasks.bot.errors import NetworkError


class BridgedRequest(BaseRequest):
    """Around the request that the bot was made with."""

    def __init__(self, api: BotApi, own: BaseRequest) -> None:
        self._api, self._own = api, own

    async def initialize(self) -> None:
        await self._own.initialize()

    async def shutdown(self) -> None:
        await self._own.shutdown()

    @property
    def read_timeout(self) -> float | None:
        return self._own.read_timeout

    async def do_request(
        self, url: str, method: str, request_data: RequestData | None = None, *timeouts: Any, **named: Any
    ) -> tuple[int, bytes]:
        if method != "POST":
            return await self._own.do_request(url, method, request_data, *timeouts, **named)
        name = url.rpartition("/")[2]
        caller = bridge.reserve(self._api, name)
        try:
            answered = await bridge.call_soon(caller, name, _params(request_data))
        except NetworkError as error:
            raise PtbNetworkError(str(error)) from error
        return answered.status, answered.body


def _params(request_data: RequestData | None) -> dict[str, Any]:
    if request_data is None:
        return {}
    uploads = {part: _upload(*parts) for part, parts in (request_data.multipart_data or {}).items()}
    return {**request_data.parameters, **uploads}


def _upload(name: str, content: Any, _kind: str) -> Any:
    return bridge.file(name, content.read() if hasattr(content, "read") else content)
