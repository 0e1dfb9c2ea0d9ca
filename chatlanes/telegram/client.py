"""Calls the Bot API over HTTP, with one pool of connections per process.

Promises a result or a typed error within the timeouts, and that the token is in no message, repr, traceback or log
line. May be shared by threads and greenlets, and built before a fork: each process opens its own connections at its
first call. Tries again only where that is safe (retries.py): a call whose answer was lost may have taken effect.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

from chatlanes.logs.redaction import keep_tokens_out_of_logs, without_token
from chatlanes.telegram import downloads, responses
from chatlanes.telegram.encoding import Request, encode
from chatlanes.telegram.errors import ChatId, NetworkError
from chatlanes.telegram.http_client import OF_FILES, HttpClient, HttpResponse, NoAnswerError
from chatlanes.telegram.retries import is_read_only, repeated

#: A machine that does not answer a connection for so long is not there. Also the longest stall while sending a file.
CONNECT_TIMEOUT_S = 10.0
#: Telegram answers in well under a second, but takes its time over large files.
READ_TIMEOUT_S = 60.0

#: Telegram's own server; any other, a local one or the simulator, is told which update a call is for.
TELEGRAM = "api.telegram.org"
UPDATE_HEADER = "X-Update-Id"
#: Which of its calls: a place in its journal, or "-"; " again" behind it when an earlier run left no outcome there.
PLACE_HEADER = "X-Call"

T = TypeVar("T")


class Prepared(NamedTuple):
    """A call that is ready to be sent, as often as need be: its files have been read."""

    method: str
    chat: ChatId
    request: Request
    messages: int = 0  #: how many it puts into the chat


def prepare(method: str, params: dict[str, Any]) -> Prepared:
    """Raises ValueError and TypeError for what cannot be sent."""
    if not (method.isascii() and method.isalnum()):
        raise ValueError(f"{method!r} is no method of the Bot API: write its name, such as sendMessage")
    return Prepared(method, _chat(params), encode(params), messages_of(method, params))


class BotApi:
    """One bot at one Bot API server."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._in_path = quote(token, safe=":")
        self._connect_timeout_s, self._read_timeout_s = connect_timeout_s, read_timeout_s
        self._names_updates = urlsplit(url).hostname != TELEGRAM
        self._process: tuple[int, HttpClient] | None = None
        keep_tokens_out_of_logs()

    @property
    def url(self) -> str:
        """Where it answers."""
        return self._url

    @property
    def token(self) -> str:
        """For a framework's own bot. It must not be shown."""
        return self._token

    def has_token(self, token: str) -> bool:
        """Whether it is this bot's."""
        return self._token == token

    def __repr__(self) -> str:
        return f"BotApi(bot {self._token.partition(':')[0]})"

    def call(self, method: str, /, **params: Any) -> Any:
        """The `result` of a Bot API method, as decoded JSON.

        Dicts and lists are sent as JSON; bytes, open files and `pathlib.Path`s are uploaded; None counts as not given.
        Raises BotApiError, of the class that says what happened.
        """
        call = prepare(method, params)
        return repeated(lambda: self.send(call), reads=is_read_only(method))

    def send(
        self, call: Prepared, update: str | None = None, place: str = "", look: Callable[[], object] | None = None
    ) -> Any:
        """Its result, by one attempt. `update` is the one that it is made for, `<bot>:<update_id>`, and `place` which
        of its calls it is. `look` is taken right before it leaves: what it raises goes up, and nothing was sent.

        Raises BotApiError.
        """
        method, chat, request, _ = call
        headers = {}
        if update and self._names_updates:
            headers = {UPDATE_HEADER: update, PLACE_HEADER: place or "-"}
        content = {"headers": headers | request.headers, "data": request.data, "files": request.files}
        path = f"/bot{self._in_path}/{method}"
        status, answer = self._ask(method, chat, "POST", path, HttpResponse.whole, look=look, **content)
        return responses.read(method, chat, status, answer, self._without_token)

    def download(self, file_path: str, to: Path | None = None) -> bytes:
        """A file by the `file_path` that getFile gave: its content, or nothing when it was written `to` a file.

        Raises BotApiError, and OSError for what cannot be written or, of a local Bot API server, cannot be read.
        """
        return repeated(lambda: self._download(file_path, to), reads=True)

    def _download(self, file_path: str, to: Path | None) -> bytes:
        if downloads.is_here(file_path):
            return downloads.take_local(file_path, to)

        def take(answer: HttpResponse) -> Any:
            if answer.status == HTTPStatus.OK:
                return downloads.take(answer.pieces(), to)
            return responses.read(downloads.METHOD, None, *answer.whole(), self._without_token)

        path = f"/file/bot{self._in_path}/{quote(file_path)}"
        content: bytes = self._ask(downloads.METHOD, None, "GET", path, take, limits=OF_FILES)
        return content

    def close(self) -> None:
        """Close this process's connections. The next call opens new ones."""
        process, self._process = self._process, None
        if process and process[0] == os.getpid():
            process[1].close()

    def _ask(
        self, method: str, chat: ChatId, verb: str, path: str, take: Callable[[HttpResponse], T], **options: Any
    ) -> T:
        """What is taken of the answer. Raises NetworkError, and what `take` raises."""
        try:
            return self._client().ask(verb, path, take, **options)
        except NoAnswerError as error:
            failed = NetworkError(method, chat, self._without_token(str(error)), uncertain=error.is_sent)
        # Outside of the except block: an error raised inside would carry the other as its context.
        raise failed

    def _client(self) -> HttpClient:
        """This process's own. Two threads that come first together make two, and one of them is soon forgotten: a lock
        would be worse, for a child forked while it is held could never call.
        """
        pid = os.getpid()
        if self._process is None or self._process[0] != pid:
            made = HttpClient(self._url, connect_timeout_s=self._connect_timeout_s, read_timeout_s=self._read_timeout_s)
            self._process = (pid, made)
        return self._process[1]

    def _without_token(self, text: str) -> str:
        return without_token(text, self._token)


def _chat(params: dict[str, Any]) -> ChatId:
    chat = params.get("chat_id")
    return chat if isinstance(chat, int | str) else None


#: Methods with a chat_id that put no message there.
_NONE = frozenset({"sendchataction"})
#: Methods that send as many messages as this parameter names.
_SEVERAL = {"sendmediagroup": "media", "copymessages": "message_ids", "forwardmessages": "message_ids"}


def messages_of(method: str, params: dict[str, Any]) -> int:
    """0 for a call that only reads, or that names no chat. What changes a message counts as one too."""
    name = method.lower()
    if params.get("chat_id") is None or name.startswith("get") or name in _NONE:
        return 0
    return max(1, _length(params.get(_SEVERAL.get(name, ""))))


def _length(several: Any) -> int:
    """Of a list, which frameworks give as its JSON."""
    if isinstance(several, str) and several.startswith("["):
        try:
            several = json.loads(several)
        except ValueError:
            return 1
    return len(several) if isinstance(several, list | tuple) else 1
