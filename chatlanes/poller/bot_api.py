"""The Bot API calls of the poller, and their errors.

Guarantees that no error contains the bot token, neither in its text nor in a chained exception: the token is part of
every URL, and an exception may contain its URL. Does not retry, wait or log: the type of an error lets the caller
decide.
"""

from typing import Any
from urllib.parse import quote, urlsplit

import orjson

from chatlanes.logs.redaction import without_token
from chatlanes.poller.responses import PollConflictError, TelegramTroubleError, result_of
from chatlanes.telegram.http_client import HttpClient, HttpResponse, NoAnswerError

#: The limit of the server for one answer.
BATCH = 100
CONNECT_WITHIN_S = 10.0
#: In addition to the long poll: the server may extend a short one to 3 s, and an answer has up to 4 MiB.
ANSWER_WITHIN_S = 10.0
#: The last confirm at shutdown takes effect when it arrives, so the wait for its answer is short.
CONFIRM_WITHIN_S = 1.0


class Telegram:
    """One bot at one Bot API server, over one kept-alive connection."""

    def __init__(
        self, url: str, token: str, kinds: tuple[str, ...] | None = None, *, answer_within_s: float = ANSWER_WITHIN_S
    ) -> None:
        self._http = HttpClient(url.rstrip("/"), connect_timeout_s=CONNECT_WITHIN_S, read_timeout_s=answer_within_s)
        self._token = token
        self._path = f"/bot{quote(token, safe=':')}/"
        self._answer_within_s = answer_within_s
        # Without a list the server uses the last one that any program gave it.
        self._kinds: dict[str, Any] = {} if kinds is None else {"allowed_updates": kinds}

    def username(self) -> str:
        """The username of the bot. Raises TokenRefusedError, TelegramTroubleError."""
        return str(self.object("getMe").get("username"))

    def updates(self, offset: int | None, timeout_s: int, limit: int = BATCH) -> list[Any]:
        """The next batch, of at most `limit` updates; empty if none arrived within `timeout_s`.

        Raises TokenRefusedError, TelegramTroubleError.

        The server forgets all updates below `offset` when this request arrives, before it answers.
        """
        wanted = {"limit": limit, "timeout": timeout_s, **self._kinds}
        if offset is not None:
            wanted["offset"] = offset
        try:
            updates = self.call("getUpdates", wanted, self._answer_within_s + timeout_s)
        except PollConflictError:
            holder = self._holder()
        else:
            return _list(updates)
        raise PollConflictError(holder)

    def confirm(self, offset: int) -> None:
        """Lets Telegram forget all updates below `offset`, without fetching any.

        An update in the answer is ignored, and stays at Telegram because its id is not below `offset`.
        The timeout is 0, because the server ends the long poll of another poller only for a request that waits.
        """
        wanted = {"offset": offset, "limit": 1, "timeout": 0, **self._kinds}
        self.call("getUpdates", wanted, CONFIRM_WITHIN_S)

    def close(self) -> None:
        self._http.close()

    def _holder(self) -> str:
        """After a 409: which other program gets the updates of this bot."""
        webhook = self.object("getWebhookInfo").get("url")
        if webhook:
            host = _host(webhook)
            return f"409, a webhook at {host} gets this bot's updates (`chatlanes webhook delete` ends it)"
        return "409, another poller gets this bot's updates (its BOT_TOKEN is in use twice)"

    def object(self, method: str) -> dict[str, Any]:
        """The `result` of a method that returns an object. Raises the errors of `call`."""
        result = self.call(method)
        if not isinstance(result, dict):
            raise TelegramTroubleError(f"the answer to {method} is not an object")
        return result

    def call(self, method: str, wanted: dict[str, Any] | None = None, answer_within_s: float | None = None) -> Any:
        """The `result` of any method. Raises TokenRefusedError, TelegramTroubleError."""
        try:
            status, body = self._http.ask(
                "POST",
                self._path + method,
                HttpResponse.whole,
                within_s=answer_within_s,
                data=orjson.dumps(wanted or {}),
                headers={"Content-Type": "application/json"},
            )
        except NoAnswerError as error:
            trouble = TelegramTroubleError(without_token(str(error), self._token))
        else:
            return result_of(method, status, body)
        # Outside of the except block, because an error raised inside would have the other one as its context.
        raise trouble


def _list(updates: Any) -> list[Any]:
    if not isinstance(updates, list):
        raise TelegramTroubleError("the answer to getUpdates is not a list")
    return updates


def _host(url: Any) -> str:
    """Only the host, because the path of a webhook may be secret."""
    try:
        return urlsplit(url).hostname or "an unknown address"
    except (ValueError, AttributeError):  # a malformed address, or not a string
        return "an unknown address"
