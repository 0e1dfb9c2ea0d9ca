"""A Bot API for any number of bots, in this process: any token of digits and `:SECRET…` is known.

    python -m bench.load.many_bots PORT

It has what the tests and the bench of many bots need: getMe, getUpdates with long polls, setWebhook, deleteWebhook,
getWebhookInfo, sendMessage. /control/push?bot=7 appends updates; /control/state returns what happened.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import defaultdict
from contextlib import suppress
from threading import Event, Thread
from typing import Any
from urllib.request import Request, urlopen

_PATH = re.compile(r"/bot(\d+):(SECRET[\w-]*)/(\w+)")


class Bot:
    """The updates of one bot, as Telegram keeps them."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.next_id = 1
        self.arrived = asyncio.Event()
        self.polls = 0  # the requests that have begun
        self.polling = 0  # those in progress
        self.token = ""  # of the last request
        self.webhook: dict[str, Any] = {}
        self.sent: list[dict[str, Any]] = []

    def push(self, updates: list[dict[str, Any]]) -> None:
        for update in updates:
            self.updates.append({"update_id": self.next_id, **update})
            self.next_id += 1
        self.arrived.set()
        self.arrived = asyncio.Event()


class ManyBots:
    """`start` returns its address."""

    def __init__(self) -> None:
        self.bots: dict[int, Bot] = defaultdict(Bot)
        self.revoked: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None

    def start(self, port: int = 0) -> str:
        Thread(target=self._loop.run_forever, name="many bots", daemon=True).start()
        serving = asyncio.start_server(self._serve, "127.0.0.1", port, backlog=2048)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result()
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        if self._server:
            self._loop.call_soon_threadsafe(self._server.close)

    def push(self, bot_id: int, *updates: dict[str, Any]) -> None:
        self._loop.call_soon_threadsafe(lambda: self.bots[bot_id].push(list(updates)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1]) if length else 0)
                answer = await self._answer(head.split()[1].decode(), body)
                content = json.dumps(answer).encode()
                status = b"200 OK" if answer["ok"] else b"%d Refused" % answer["error_code"]
                writer.write(b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n" % status)
                writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(content), content))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, body: bytes) -> dict[str, Any]:
        given: dict[str, Any] = json.loads(body) if body.startswith(b"{") else {}
        if path == "/control/push":
            for bot_id, updates in given.items():
                self.bots[int(bot_id)].push(updates)
            return {"ok": True, "result": len(given)}
        if path == "/control/state":
            polls = {bot_id: [bot.polls, bot.polling, len(bot.updates)] for bot_id, bot in self.bots.items()}
            return {"ok": True, "result": polls}
        found = _PATH.fullmatch(path)
        if found is None or f"{found[1]}:{found[2]}" in self.revoked:
            return {"ok": False, "error_code": 401, "description": "Unauthorized"}
        bot = self.bots[int(found[1])]
        bot.token = f"{found[1]}:{found[2]}"
        return {"ok": True, "result": await self._result(int(found[1]), bot, found[3], given)}

    async def _result(self, bot_id: int, bot: Bot, method: str, given: dict[str, Any]) -> Any:
        match method:
            case "getMe":
                return {"id": bot_id, "is_bot": True, "first_name": "Bot", "username": f"bot{bot_id}"}
            case "getUpdates":
                return await self._updates(bot, given)
            case "setWebhook":
                bot.webhook = given
            case "deleteWebhook":
                bot.webhook = {}
            case "getWebhookInfo":
                return {"url": bot.webhook.get("url", ""), "pending_update_count": len(bot.updates)}
            case "sendMessage":
                bot.sent.append(given)
                return {"message_id": len(bot.sent), "date": 0, "chat": {"id": given["chat_id"], "type": "private"}}
        return True

    async def _updates(self, bot: Bot, given: dict[str, Any]) -> list[dict[str, Any]]:
        bot.polls += 1
        bot.polling += 1
        try:
            bot.updates = [each for each in bot.updates if each["update_id"] >= given.get("offset", 0)]
            if not bot.updates and given.get("timeout"):
                with suppress(TimeoutError):
                    await asyncio.wait_for(bot.arrived.wait(), given["timeout"])
            return bot.updates[: given.get("limit", 100)]
        finally:
            bot.polling -= 1


def control(url: str, what: str, given: dict[str, Any] | None = None) -> Any:
    """The result of a control request."""
    request = Request(f"{url}/control/{what}", json.dumps(given or {}).encode())  # noqa: S310 - http
    with urlopen(request) as answer:  # noqa: S310 - http
        return json.load(answer)["result"]


if __name__ == "__main__":
    server = ManyBots()
    print(server.start(int(sys.argv[1])), flush=True)
    Event().wait()  # until it is killed
