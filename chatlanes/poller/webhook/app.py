"""The receiver as an ASGI app, built from settings: a hook for each bot.

Guarantees 200 only for updates that are durable in Redis, 503 with Retry-After for updates that could not be stored,
and no other status above 499. A request without the secret, or whose length is ambiguous, is answered before its body
is read. The connection closes after an answer that was sent before the end of a body. A missing setting that a
receiver needs is one sentence.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_network
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chatlanes.poller.factory import check
from chatlanes.poller.webhook.intake import HookIntake, NotDurableError, SharedAppends
from chatlanes.poller.webhook.validation import (
    MOST_BYTES,
    Rejection,
    RequestValidator,
    has_body,
    is_ambiguous,
    update_of,
)
from chatlanes.settings import Settings, SettingsError, secret_from
from chatlanes.settings.bots import AddedBot
from chatlanes.updates.added_bots import LOOK_EVERY_S, Followed, Registry
from chatlanes.updates.connection import connect_to

log = logging.getLogger("poller")

#: Key in the state of an ASGI scope: the connection of the request, if `serving` serves it.
PEER = "chatlanes.peer"
#: For /readyz, which proxies call often. A receiver whose Redis answers more slowly is not ready.
READY_WITHIN_S = 1.0
#: /readyz asks Redis at most this often, because anybody who reaches the port can send it.
READY_EVERY_S = 1.0
#: For the whole body. Telegram and proxies have fast connections.
BODY_WITHIN_S = 10.0
#: Telegram follows this instead of its own pauses, which double up to a minute or two.
RETRY_AFTER_S = 2
#: The threads, and connections to Redis, on which the updates of all added bots are appended.
SHARED_THREADS = 8
#: The rate of RateLimitedLog.
LOG_EVERY_S = 30.0


def receiver_of(settings: Settings) -> tuple[ASGIApp, Hooks]:
    """The app, and its hooks, one for each bot. Raises SettingsError."""
    hooks = Hooks(settings)
    client = connect_to(settings, READY_WITHIN_S)

    def is_ready() -> bool:
        try:
            return bool(client.ping())
        except (RedisError, OSError):
            return False

    is_ready_now = Readiness(is_ready)

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def readyz(request: Request) -> Response:
        if await is_ready_now():
            return PlainTextResponse("ready\n")
        return PlainTextResponse("Redis does not answer\n", 503)

    health = [Route("/healthz", healthz), Route("/readyz", readyz)]
    app = Starlette(routes=health)
    app.router.redirect_slashes = False  # Telegram follows no redirect

    async def with_hooks(scope: Scope, receive: Receive, send: Send) -> None:
        hook = hooks.at(scope["path"]) if scope["type"] == "http" else None
        if hook is not None and scope["method"] != "POST":
            await _answer(send, 405, "Method Not Allowed", [(b"allow", b"POST")])
        else:
            await (hook or app)(scope, receive, send)

    return CloseUnread(with_hooks), hooks


def webhook(app: ASGIApp, settings: Settings) -> ASGIApp:
    """An ASGI app that receives updates, and passes all other requests to `app`: the webhook in a web server of yours.

    It answers POST requests to the path of WEBHOOK_URL as `chatlanes webhook` does. For Starlette and FastAPI it is a
    middleware: `app.add_middleware(webhook, settings=load())`. Raises SettingsError and
    ImportPathError.
    """
    for bot in settings.served:
        check(bot)
    hooks = Hooks(settings)

    async def with_webhook(scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        await ((hooks.at(scope["path"]) if is_post else None) or app)(scope, receive, send)

    return with_webhook


def hook_of(bot: Settings, shared: SharedAppends | None = None) -> Hook:
    """Raises SettingsError."""
    networks = tuple(map(ip_network, bot.webhook_networks or ()))
    validator = RequestValidator(secret_of(bot).encode(), networks)
    return Hook(bot.bot_name, path_of(bot), validator, HookIntake(bot, shared))


class Hooks:
    """The hooks of all bots by their paths. With BOTS_KEY a thread follows the bots that are added and removed."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError."""
        self._static = {hook.path: hook for hook in map(hook_of, settings.served)}
        self._added: dict[str, Hook] = {}
        self._known: dict[int, tuple[AddedBot, Hook]] = {}
        if settings.bots_key is None:
            return
        path_of(AddedBot.of(settings, "1:unused", settings.bot))  # raises
        self._shared = [SharedAppends(settings) for _ in range(SHARED_THREADS)]
        self._followed = Followed(Registry.connect(settings))
        self._follow()
        Thread(target=self._follow_on, name="added bots", daemon=True).start()

    def at(self, path: str) -> Hook | None:
        return self._static.get(path) or self._added.get(path)

    def __iter__(self) -> Iterator[Hook]:
        return iter([*self._static.values(), *self._added.values()])

    def give_up(self) -> None:
        """Ends every wait for Redis."""
        for hook in self:
            hook.intake.commits.give_up()

    def _follow(self) -> None:
        if not self._followed.look():
            return
        known, self._known = self._known, {}
        for bot_id, bot in self._followed.served.items():
            of, hook = known.get(bot_id, (None, None))
            if hook is None or of is not bot:
                hook = hook_of(bot, self._shared[bot_id % SHARED_THREADS])
            self._known[bot_id] = bot, hook
        self._added = {hook.path: hook for _, hook in self._known.values()}
        log.info("receiving for %d added bots", len(self._added))

    def _follow_on(self) -> None:
        while True:
            time.sleep(LOOK_EVERY_S)
            try:
                self._follow()
            except Exception:  # if this thread died, no bot could be added
                log.exception("added bots: an error in chatlanes; the thread continues")


def path_of(bot: Settings) -> str:
    """Raises SettingsError."""
    path = unquote(urlsplit(url_of(bot)).path) or "/"
    if "{" in path or "}" in path:
        raise SettingsError("WEBHOOK_URL: the path must not contain { or }")
    if path in ("/healthz", "/readyz"):
        raise SettingsError(f"WEBHOOK_URL: the receiver uses {path} itself; give the webhook another path")
    return path


def url_of(bot: Settings) -> str:
    """WEBHOOK_URL; if there are several bots, with the name of the bot appended. Raises SettingsError."""
    if bot.webhook_url is None:
        raise SettingsError(
            "WEBHOOK_URL is not set: set the public address to which Telegram sends updates, such as "
            "https://bot.example.org/telegram"
        )
    return f"{bot.webhook_url}/{bot.bot_name}" if bot.bot_name else bot.webhook_url


def secret_of(bot: Settings) -> str:
    """WEBHOOK_SECRET, or a secret that is derived from the token. Raises SettingsError."""
    if bot.webhook_secret is not None:
        return bot.webhook_secret.get_secret_value()
    return secret_from(bot.token)


def webhook_of(bot: Settings) -> dict[str, object]:
    """The parameters of setWebhook for this bot. Raises SettingsError."""
    kinds = {} if bot.allowed_updates is None else {"allowed_updates": bot.allowed_updates}
    return {"url": url_of(bot), "secret_token": secret_of(bot), **kinds}


@dataclass
class Readiness:
    """The answer to /readyz, asked for once for all requests of READY_EVERY_S, on a thread: `ask` may block."""

    ask: Callable[[], bool]
    _asked_at_s: float = field(default=float("-inf"), init=False)
    _answer: asyncio.Future[bool] | None = field(default=None, init=False)

    async def __call__(self) -> bool:
        now_s = time.monotonic()
        if self._answer is None or now_s - self._asked_at_s >= READY_EVERY_S:
            self._asked_at_s, self._answer = now_s, asyncio.ensure_future(asyncio.to_thread(self.ask))
        return await asyncio.shield(self._answer)


@dataclass
class CloseUnread:
    """Closes a connection after an answer that was sent before the end of a body. Does not answer a malformed request,
    which was answered with 400 before.
    """

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["state"][PEER].is_malformed:
            return None
        headers = dict(scope["headers"])
        has_more = has_body(headers)

        async def counted_receive() -> Message:
            nonlocal has_more
            message = await receive()
            has_more = has_more and message.get("more_body", False)
            return message

        async def closing_send(message: Message) -> None:
            if message["type"] == "http.response.start" and has_more:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        if is_ambiguous(headers):
            return await _answer(closing_send, 400, "send either Content-Length or Transfer-Encoding")
        return await self.app(scope, counted_receive, closing_send)


@dataclass
class Hook:
    """The endpoint of one bot. `name` is empty if there is only one bot."""

    name: str
    path: str
    validator: RequestValidator
    intake: HookIntake
    _refusals: RateLimitedLog = field(init=False)

    def __post_init__(self) -> None:
        self._refusals = RateLimitedLog(f"{self.name}: " if self.name else "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        client = scope["client"][0] if scope["client"] else None
        refused = self.validator.refusal(client, headers)
        if refused:
            return await self._refuse(refused, send)
        if peer := scope.get("state", {}).get(PEER):  # other servers have none
            peer.authenticated()
        if not self.intake.has_room():
            return await _answer_unavailable(send)
        update = await _update_from(receive)
        if isinstance(update, Rejection):
            return await self._refuse(update, send)
        if update is None:
            return None  # the client disconnected
        try:
            await self.intake.commits.add(update)
        except NotDurableError:
            return await _answer_unavailable(send)
        # If the process dies here, Telegram sends the update again, and it is dropped as seen.
        return await _answer(send, 200)

    async def _refuse(self, refused: Rejection, send: Send) -> None:
        self._refusals.count(f"refused with {refused.status}: {refused.words}")
        await _answer(send, refused.status, refused.words)


async def _update_from(receive: Receive) -> Any | Rejection | None:
    """None if the client disconnected."""
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            body = await _body(receive)
    except TimeoutError:
        return Rejection.TOO_SLOW
    if body is None:
        return None
    return update_of(body) if len(body) <= MOST_BYTES else Rejection.TOO_LONG


async def _body(receive: Receive) -> bytes | None:
    """Reads at most enough of the body to see that it is too long."""
    body, has_more = b"", True
    while has_more and len(body) <= MOST_BYTES:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        has_more = message.get("more_body", False)
    return body


async def _answer_unavailable(send: Send) -> None:
    await _answer(send, 503, "try again", [(b"retry-after", b"%d" % RETRY_AFTER_S)])


async def _answer(send: Send, status: int, words: str = "", headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    body = f"{words}\n".encode() if words else b""
    all_headers = [(b"content-length", b"%d" % len(body)), *headers]
    if body:
        all_headers.append((b"content-type", b"text/plain; charset=utf-8"))
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})


class RateLimitedLog:
    """Warnings that anyone on the network can cause. `prefix` is put before each line.

    Guarantees a line for the first warning of each kind at once, then at most one every LOG_EVERY_S, with their number.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._unlogged: Counter[str] = Counter()
        self._logged_at_s: dict[str, float] = {}

    def count(self, words: str) -> None:
        """`words` identify the kind of warning; they contain nothing of the request."""
        now_s = time.monotonic()
        self._unlogged[words] += 1
        if now_s - self._logged_at_s.get(words, float("-inf")) < LOG_EVERY_S:
            return
        self._logged_at_s[words] = now_s
        log.warning("%s%s (%d since the last log line)", self._prefix, words, self._unlogged.pop(words))
