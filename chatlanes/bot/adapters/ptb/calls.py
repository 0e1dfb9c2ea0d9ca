"""A request object for python-telegram-bot that makes its calls through the bridge.

Every Bot API call, with uploads, and every download from the Bot API goes through the bridge, with our timeouts.
Requests to other addresses use the bot's original request object.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from telegram import Bot
from telegram.error import NetworkError as PtbNetworkError
from telegram.request import BaseRequest, RequestData

from chatlanes.bot.adapters import bridge
from chatlanes.lanes.errors import LanesError
from chatlanes.telegram import NetworkError
from chatlanes.telegram.client import BotApi


class BridgedRequest(BaseRequest):
    """Wraps the request object that the bot was created with."""

    def __init__(self, api: BotApi, bot: Bot) -> None:
        self._api, self._own = api, bot._request[1]
        self._files = f"{bot.base_file_url}/"

    async def initialize(self) -> None:
        await self._own.initialize()

    async def shutdown(self) -> None:
        await self._own.shutdown()

    @property
    def read_timeout(self) -> float | None:
        return self._own.read_timeout

    async def _request_wrapper(self, *arguments: Any, **named: Any) -> bytes:
        """Re-raises lanes errors, which the framework converts to NetworkError; bots would retry that."""
        try:
            return await super()._request_wrapper(*arguments, **named)
        except PtbNetworkError as error:
            if isinstance(error.__cause__, LanesError):
                raise error.__cause__ from None
            raise

    async def do_request(
        self, url: str, method: str, request_data: RequestData | None = None, *timeouts: Any, **named: Any
    ) -> tuple[int, bytes]:
        try:
            if method == "POST":
                return await self._call(url.rpartition("/")[2], request_data)
            # The colon of the token is encoded as %3A.
            if (file := unquote(url)).startswith(self._files):
                return await bridge.fetch_soon(self._api, file.removeprefix(self._files))
        except NetworkError as error:
            raise PtbNetworkError(str(error)) from error
        return await self._own.do_request(url, method, request_data, *timeouts, **named)

    async def _call(self, name: str, request_data: RequestData | None) -> tuple[int, bytes]:
        with bridge.reserved(self._api, name) as caller:
            answered = await bridge.call_soon(caller, name, _params(request_data))
        if name == "getFile":
            self._check_file(answered.content.get("result"))
        return answered.status, answered.body

    def _check_file(self, result: Any) -> None:
        """The framework reads the file of this machine that a `file_path` names, if there is one."""
        if isinstance(result, dict) and isinstance(file_path := result.get("file_path"), str):
            self._api.check_local(file_path)


def _params(request_data: RequestData | None) -> dict[str, Any]:
    if request_data is None:
        return {}
    uploads = {part: _upload(*parts) for part, parts in (request_data.multipart_data or {}).items()}
    return {**request_data.parameters, **uploads}


def _upload(name: str, content: Any, _kind: str) -> Any:
    return bridge.file(name, content.read() if hasattr(content, "read") else content)
