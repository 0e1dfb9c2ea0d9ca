"""Sends waiting updates to a webhook, as the public server does.

Order holds inside a queue only, with at most `max_connections` requests at a time, one for each queue. An update is
forgotten when it was answered with 2xx; otherwise it is sent again at once, then after 2, 4, 8 … 60 s, or as
Retry-After says, without end. No redirects and no certificate checks: it sends to programs of this machine.
"""

import asyncio
import os
import random
import ssl
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import h11
import orjson

from chatlanes_sandbox.simulator.updates import PendingUpdates

# ── the queue of the public server that an update passes ──

#: Messages, edits and posts of a chat share one queue.
MESSAGES = frozenset({"message", "edited_message", "channel_post", "edited_channel_post"})
#: These share one queue of their user.
OF_USER = frozenset({"business_connection", "inline_query", "chosen_inline_result", "chat_member", "chat_join_request"})
#: Each of these has a queue of its own for each user.
OWN_OF_USER = frozenset(
    {"callback_query", "shipping_query", "pre_checkout_query", "purchased_paid_media", "managed_bot", "subscription"}
)

Queue = tuple[str, Any]


def queue_of(update: Any) -> Queue:
    """The name of the queue. Any JSON value has one, even if it is not an update."""
    fields = update if isinstance(update, dict) else {}
    kind = next((field for field in fields if field != "update_id"), "")
    event = fields.get(kind)
    event = event if isinstance(event, dict) else {}
    if kind in MESSAGES:
        return "messages", _id(event, "chat")
    if kind in OF_USER:
        return "user", _id(event, "from", "user")
    if kind in OWN_OF_USER:
        return kind, _id(event, "from", "user")
    if kind in ("poll", "poll_answer"):
        return "poll", event.get("id") if kind == "poll" else event.get("poll_id")
    return kind, _id(event, "chat", "from", "user")


def _id(event: dict[str, Any], *names: str) -> Any:
    """The id of the first of these fields that is present."""
    return next((event[name].get("id") for name in names if isinstance(event.get(name), dict)), None)


# ── HTTP/1.1 POST to one address over keep-alive connections ──

#: How long the public server waits for a webhook.
ANSWER_WITHIN_S = 60.0
LONGEST_ANSWER = 1 << 20


@dataclass(frozen=True)
class PostResponse:
    """`retry_after_s` is 0 if the answer has none; `kind` is its content type."""

    status: int
    reason: str
    retry_after_s: float = 0.0
    kind: str = ""
    body: bytes = b""


class BrokenResponseError(ConnectionError):
    """A malformed or incomplete HTTP response."""


class Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    protocol: h11.Connection


@dataclass
class Address:
    """One connection for each concurrent request, reused if the server allows it.

    Raises OSError if it cannot be reached or closes the connection, TimeoutError if it does not answer, and
    h11.LocalProtocolError or UnicodeError for a secret or a path that HTTP cannot hold.
    """

    url: str
    headers: dict[str, str]
    _idle: list[Connection] = field(default_factory=list, init=False)

    @property
    def is_here(self) -> bool:
        return urlsplit(self.url).hostname in ("127.0.0.1", "localhost", "::1")

    async def post(self, body: bytes) -> PostResponse:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            if self._idle:
                try:
                    return await self._exchange(self._idle.pop(), body)
                except ConnectionError:
                    pass  # closed while it was idle, most likely
            return await self._exchange(await self._connect(), body)

    def close(self) -> None:
        for connection in self._idle:
            connection.writer.close()
        self._idle.clear()

    async def _connect(self) -> Connection:
        place = urlsplit(self.url)
        secure = place.scheme == "https"
        context = ssl._create_unverified_context() if secure else None  # noqa: S323 - on this machine
        port = place.port or (443 if secure else 80)
        reader, writer = await asyncio.open_connection(place.hostname, port, ssl=context)
        return Connection(reader, writer, h11.Connection(h11.CLIENT))

    async def _exchange(self, connection: Connection, body: bytes) -> PostResponse:
        _, writer, protocol = connection
        try:
            for event in (self._head(len(body)), h11.Data(body), h11.EndOfMessage()):
                writer.write(protocol.send(event) or b"")
            answer = await _read_answer(connection)
        except h11.RemoteProtocolError as error:
            writer.close()
            raise BrokenResponseError(f"malformed HTTP response: {error}") from error
        except BaseException:
            writer.close()
            raise
        if protocol.our_state is protocol.their_state is h11.DONE:
            protocol.start_next_cycle()
            self._idle.append(connection)
        else:
            writer.close()
        return answer

    def _head(self, length: int) -> h11.Request:
        place = urlsplit(self.url)
        headers = {"Host": place.netloc, "Content-Type": "application/json", "Content-Length": str(length)}
        return h11.Request(method="POST", target=place.path or "/", headers=[*(headers | self.headers).items()])


async def _read_answer(connection: Connection) -> PostResponse:
    head, body = h11.Response(status_code=200, headers=[]), bytearray()
    while True:
        match event := connection.protocol.next_event():
            case h11.NEED_DATA:
                received = await connection.reader.read(1 << 16)
                if not received and connection.protocol.their_state is h11.SEND_RESPONSE:
                    raise BrokenResponseError("the connection was closed without an answer")
                connection.protocol.receive_data(received)
            case h11.Response():
                head = event
            case h11.Data():
                body += event.data[: LONGEST_ANSWER - len(body)]
            case h11.EndOfMessage():
                break
    headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
    wish = headers.get("retry-after", "")
    retry_after_s = float(wish) if wish.isdigit() else 0.0
    kind = headers.get("content-type", "")
    return PostResponse(head.status_code, head.reason.decode("latin-1"), retry_after_s, kind, bytes(body))


# ── the webhook ──

SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105 - its name
MOST_CONNECTIONS, USUAL_CONNECTIONS = 100, 40
LONGEST_PAUSE_S, LONGEST_WISH_S = 60.0, 3600.0


@dataclass(frozen=True)
class Disorder:
    """How unreliable the connection to the webhook is.

    jitter_s  each request is delayed by up to this time, which changes the order between queues
    repeat    this share of the updates is sent again after an answer, as when the answer is lost
    seed      of the random delays and repetitions
    """

    jitter_s: float = 0.0
    repeat: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.jitter_s < 0 or not 0 <= self.repeat <= 1:
            raise ValueError("jitter_s must be at least 0, repeat from 0 to 1")


@dataclass
class Webhook:
    """One webhook, from setWebhook to the next. Sends the waiting updates, and those passed to `take`."""

    address: Address
    max_connections: int
    updates: PendingUpdates
    #: Called with the content type and the body of each answer that has a body: it may be a call.
    replied: Callable[[str, bytes], Awaitable[None]]
    disorder: Disorder = Disorder()
    #: status -> count; 0: no answer.
    answered: Counter[int] = field(default_factory=Counter)
    last_error: tuple[int, str] | None = None

    _waiting: dict[Queue, deque[tuple[int, bytes]]] = field(default_factory=dict, init=False)
    #: The queues that are being sent; all others wait in `_line`.
    _loaded: dict[Queue, "asyncio.Task[None]"] = field(default_factory=dict, init=False)
    _line: deque[Queue] = field(default_factory=deque, init=False)

    def __post_init__(self) -> None:
        self._connections = asyncio.Semaphore(self.max_connections)
        self._chance = random.Random(self.disorder.seed)  # noqa: S311 - a demonstration, not a secret
        for update_id, body in self.updates.waiting():
            self.take(update_id, body)

    def take(self, update_id: int, body: bytes) -> None:
        """A new update."""
        queue = queue_of(orjson.loads(body))
        if queue not in self._waiting:
            self._waiting[queue] = deque()
            self._line.append(queue)
        self._waiting[queue].append((update_id, body))
        self._load()

    def disturb(self, disorder: Disorder) -> None:
        self.disorder = disorder
        self._chance = random.Random(disorder.seed)  # noqa: S311

    def tally(self) -> dict[str, int]:
        return {str(status): count for status, count in self.answered.items()}

    def end(self) -> None:
        for task in self._loaded.values():
            task.cancel()
        self.address.close()

    def _load(self) -> None:
        """The public server serves this many queues at a time: refused ones delay the rest."""
        while self._line and len(self._loaded) < 2 * self.max_connections:
            queue = self._line.popleft()
            self._loaded[queue] = asyncio.get_running_loop().create_task(self._send_all(queue))

    async def _send_all(self, queue: Queue) -> None:
        waiting = self._waiting[queue]
        while waiting:
            update_id, body = waiting[0]
            await self._until_taken(body)
            if self._chance.random() < self.disorder.repeat:
                await self._send(body)
            waiting.popleft()
            self.updates.delivered(update_id)
        del self._waiting[queue], self._loaded[queue]
        self._load()

    async def _until_taken(self, body: bytes) -> None:
        pause_s, failures = 1.0, 0
        while True:
            answer = await self._send(body)
            if 200 <= answer.status < 300:
                return
            if failures:
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            wait_s = min(answer.retry_after_s, LONGEST_WISH_S) or (pause_s if failures else 0.0)
            failures += 1
            self.last_error = int(time.time()), answer.reason
            await asyncio.sleep(wait_s)

    async def _send(self, body: bytes) -> PostResponse:
        async with self._connections:
            if self.disorder.jitter_s:
                await asyncio.sleep(self._chance.uniform(0, self.disorder.jitter_s))
            answer = await self._posted(body)
        self.answered[answer.status] += 1
        if answer.body and 200 <= answer.status < 300:
            await self.replied(answer.kind, answer.body)
        return answer

    async def _posted(self, body: bytes) -> PostResponse:
        if not self.address.is_here:
            return PostResponse(0, "the simulator sends to this machine only")
        try:
            answer = await self.address.post(body)
        except TimeoutError:
            return PostResponse(0, "Connection timed out")
        except (OSError, h11.LocalProtocolError, UnicodeError) as error:
            number = error.errno if isinstance(error, ConnectionError) else None  # asyncio's words are others
            return PostResponse(0, os.strerror(number) if number else str(error) or type(error).__name__)
        if 200 <= answer.status < 300:
            return answer
        told = f"Wrong response from the webhook: {answer.status} {answer.reason}"
        return PostResponse(answer.status, told, answer.retry_after_s)


def webhook_from(
    params: dict[str, Any],
    connections: int,
    updates: PendingUpdates,
    replied: Callable[[str, bytes], Awaitable[None]],
    disorder: Disorder,
) -> Webhook:
    """A webhook from the parameters of setWebhook."""
    secret = params.get("secret_token")
    headers = {SECRET_HEADER: str(secret)} if secret else {}
    most = min(max(connections, 1), MOST_CONNECTIONS)
    return Webhook(Address(str(params["url"]), headers), most, updates, replied, disorder)
