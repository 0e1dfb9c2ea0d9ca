"""The Bot API calls of the poller, and what can be wrong with them.

Promises that the bot token is in no error, neither in its text nor in an exception it hangs on to: the token is a
part of every URL, and an exception may tell its URL.
Does not retry, wait or log: an error says what kind it is, the caller decides.
"""

from typing import Any
from urllib.parse import quote, urlsplit

import orjson

from chatlanes.logs.redaction import without_token
from chatlanes.poller.responses import PollConflictError, TelegramTroubleError, result_of
from chatlanes.telegram.http_client import HttpClient, HttpResponse, NoAnswerError

#: The server's own limit for one answer.
BATCH = 100
CONNECT_WITHIN_S = 10.0
#: On top of the long poll: the server may stretch a short one to 3 s, and an answer has up to 4 MiB.
ANSWER_WITHIN_S = 10.0
#: The last word at the end of the process takes effect when it arrives; nobody waits long for its answer.
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
        # Without a list the server keeps to the last one it was given, by whichever program.
        self._kinds: dict[str, Any] = {} if kinds is None else {"allowed_updates": kinds}

    def username(self) -> str:
        """Who the token is for. Raises TokenRefusedError, TelegramTroubleError."""
        return str(self.object("getMe").get("username"))

    def updates(self, offset: int | None, timeout_s: int, limit: int = BATCH) -> list[Any]:
        """The next batch, of `limit` at most, empty when none came within `timeout_s`.

        Raises TokenRefusedError, TelegramTroubleError.

        The server forgets all updates below `offset` when this request arrives, before anything of it comes back.
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
        """Let Telegram forget what is below `offset`, and fetch nothing.

        The answer may hold an update: it is dropped here and stays at Telegram, its id is not below `offset`.
        A timeout of 0 leaves another poller's long poll alone: the server ends it only for one that waits.
        """
        wanted = {"offset": offset, "limit": 1, "timeout": 0, **self._kinds}
        self.call("getUpdates", wanted, CONFIRM_WITHIN_S)

    def close(self) -> None:
        self._http.close()

    def _holder(self) -> str:
        """After a 409: who else gets this bot's updates."""
        webhook = self.object("getWebhookInfo").get("url")
        if webhook:
            host = _host(webhook)
            return f"409, a webhook at {host} gets this bot's updates (`chatlanes webhook delete` ends it)"
        return "409, another poller gets this bot's updates (its BOT_TOKEN is in use twice)"

    def object(self, method: str) -> dict[str, Any]:
        """The `result` of a method that has an object. Raises as `call`."""
        result = self.call(method)
        if not isinstance(result, dict):
            raise TelegramTroubleError(f"an answer to {method} that is not an object")
        return result

    def call(self, method: str, wanted: dict[str, Any] | None = None, answer_within_s: float | None = None) -> Any:
        """The `result` of any method, whatever it is. Raises TokenRefusedError, TelegramTroubleError."""
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
        # Outside of the except block: an error raised inside would carry the other as its context.
        raise trouble


def _list(updates: Any) -> list[Any]:
    if not isinstance(updates, list):
        raise TelegramTroubleError("an answer to getUpdates that is not a list")
    return updates


def _host(url: Any) -> str:
    """Not the whole: the path of a webhook may be secret."""
    try:
        return urlsplit(url).hostname or "an unknown address"
    except (ValueError, AttributeError):  # a malformed address; not a text
        return "an unknown address"
