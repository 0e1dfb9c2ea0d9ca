"""A session for aiogram's Bot that makes its calls through the bridge.

Every method goes through the bridge, uploads included, and responses are parsed or raised as aiogram does. The bot's
original session still provides its middlewares and downloads files.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from aiogram import Bot
from aiogram.client.session.base import BaseSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import TelegramNetworkError
from aiogram.methods import Response, TelegramMethod
from aiogram.types import InputFile

from chatlanes.bot.adapters import bridge
from chatlanes.bot.adapters.errors import warn_of_address, warn_of_proxy
from chatlanes.telegram import NetworkError
from chatlanes.telegram.client import BotApi


class BridgedSession(BaseSession):
    """Wraps the session that the bot was created with."""

    def __init__(self, api: BotApi, own: BaseSession) -> None:
        # Responses are decoded already, so json_loads returns its argument.
        super().__init__(api=TelegramAPIServer.from_base(api.url), json_loads=_unchanged, json_dumps=own.json_dumps)
        self.middleware = own.middleware
        self._bot_api = api
        self._own = own
        warn_of_address(own.api.base.partition("/bot{token}")[0], api)
        if getattr(own, "proxy", None):
            warn_of_proxy()

    async def make_request(self, bot: Bot, method: TelegramMethod[Any], timeout: int | None = None) -> Any:
        """`timeout` is ignored; BotApi's timeouts apply."""
        with bridge.reserved(self._bot_api, method.__api_method__) as caller:
            params = await self._params(bot, method)
            try:
                answered = await bridge.call_soon(caller, method.__api_method__, params)
            except NetworkError as error:
                raise TelegramNetworkError(method=method, message=str(error)) from error
        _keep_type(method)
        content: Any = answered.content
        return self.check_response(bot=bot, method=method, status_code=answered.status, content=content).result

    async def _params(self, bot: Bot, method: TelegramMethod[Any]) -> dict[str, Any]:
        files: dict[str, Any] = {}
        fields = method.model_dump(warnings=False).items()
        params = {name: self.prepare_value(value, bot=bot, files=files) for name, value in fields}
        uploads = {name: await _upload(name, file, bot) for name, file in files.items()}
        return {name: value for name, value in params.items() if value} | uploads

    async def stream_content(
        self,
        url: str,
        headers: dict[str, Any] | None = None,
        timeout: int = 30,
        chunk_size: int = 65536,
        raise_for_status: bool = True,
    ) -> AsyncGenerator[bytes, None]:
        async for chunk in self._own.stream_content(url, headers, timeout, chunk_size, raise_for_status):
            yield chunk

    async def close(self) -> None:
        await self._own.close()


def _unchanged(content: Any) -> Any:
    return content


#: Response types that are kept alive: pydantic would rebuild an unreferenced one each time, which takes 0.3 ms.
_types: dict[type, Any] = {}


def _keep_type(method: TelegramMethod[Any]) -> None:
    if type(method) not in _types:
        _types[type(method)] = Response[method.__returning__]  # type: ignore[name-defined]


async def _upload(name: str, file: InputFile, bot: Bot) -> Any:
    content = b"".join([chunk async for chunk in file.read(bot)])
    return bridge.file(file.filename or name, content)
