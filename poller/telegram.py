"""The Bot API calls of the poller, and what can be wrong with them.

Promises that the bot token is in no error, neither in its text nor in an exception it hangs on to: the token is a
part of every URL, and `requests` puts URLs into its exceptions.
Does not retry, wait or log: an error says what kind it is, the caller decides.
"""

from typing import Any
from urllib.parse import urlsplit

import orjson
import requests
from requests.utils import get_netrc_auth

from poller.answer import ConflictError, TelegramTroubleError, result_of
from tasks import traces
from tasks.logs.secrecy import without_token

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
        self._url = f"{url}/bot{token}/"
        self._token = token
        self._answer_within_s = answer_within_s
        # Without a list the server keeps to the last one it was given, by whichever program.
        self._kinds: dict[str, Any] = {} if kinds is None else {"allowed_updates": kinds}
        self._session = requests.Session()
        self._session.headers["Content-Type"] = "application/json"
        # Looked at once: requests would go through the whole environment for each poll.
        self._environment = self._session.merge_environment_settings(url, {}, None, None, None)
        self._session.auth = get_netrc_auth(url)
        self._session.trust_env = False

    def username(self) -> str:
        """Who the token is for. Raises TokenRefusedError, TelegramTroubleError."""
        return str(self.call("getMe").get("username"))

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
        except ConflictError:
            holder = self._holder()
        else:
            return _list(updates)
        raise ConflictError(holder)

    def confirm(self, offset: int) -> None:
        """Let Telegram forget what is below `offset`, and fetch nothing.

        The answer may hold an update: it is dropped here and stays at Telegram, its id is not below `offset`.
        A timeout of 0 leaves another poller's long poll alone: the server ends it only for one that waits.
        """
        wanted = {"offset": offset, "limit": 1, "timeout": 0, **self._kinds}
        self.call("getUpdates", wanted, CONFIRM_WITHIN_S)

    def close(self) -> None:
        self._session.close()

    def _holder(self) -> str:
        """After a 409: who else gets this bot's updates."""
        webhook = self.call("getWebhookInfo").get("url")
        if webhook:
            host = urlsplit(webhook).hostname
            return f"409, a webhook at {host} gets this bot's updates (`python -m poller webhook delete` ends it)"
        return "409, another poller gets this bot's updates (its BOT_TOKEN is in use twice)"

    def call(self, method: str, wanted: dict[str, Any] | None = None, answer_within_s: float | None = None) -> Any:
        """The `result` of any method, a dict or list as it has it. Raises TokenRefusedError, TelegramTroubleError."""
        response = self._post(method, orjson.dumps(wanted or {}), answer_within_s or self._answer_within_s)
        return result_of(response.status_code, response.content)

    def _post(self, method: str, body: bytes, answer_within_s: float) -> requests.Response:
        try:
            with traces.here().unseen():
                return self._session.post(
                    self._url + method,
                    data=body,
                    timeout=(CONNECT_WITHIN_S, answer_within_s),
                    **self._environment,
                    allow_redirects=False,  # the Bot API has none; whoever redirects would be handed the updates
                )
        except requests.RequestException as error:
            problem = self._told(error)
        # Outside of the except block: an error raised inside would carry the one with the URL as its context.
        raise TelegramTroubleError(problem)

    def _told(self, error: requests.RequestException) -> str:
        if isinstance(error, requests.ReadTimeout):
            return "no answer in time"
        text = str(_innermost(error)) or type(error).__name__
        return f"not reached ({without_token(text, self._token)})"


def _list(updates: Any) -> list[Any]:
    if not isinstance(updates, list):
        raise TelegramTroubleError("an answer to getUpdates that is no list")
    return updates


def _innermost(error: BaseException) -> BaseException:
    """What happened: the outer ones tell of pools, retries, URLs and memory addresses."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return error
