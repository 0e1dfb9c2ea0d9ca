"""Calls the Bot API over HTTP, with one connection pool per process.

Every call ends within the timeouts with a result or a typed error, and the token appears in no message, repr, traceback
or log line. A client may be shared by threads and greenlets and created before a fork: each process opens its own
connections. A call is repeated only if it cannot have taken effect or only reads, because a server error or a lost
response leave open whether it took effect. The repeats end after a few seconds, because the waiting handler blocks its
lane. A 429 is left to flood control.

Parameters are sent as JSON, or as a form if they upload files or hold JSON text. Files may be a parameter
(`photo=Path("cat.png")`) or inside one (the `media` of an album, sent as `attach://…`). A `Path` is read in pieces
while it is sent; open files are read into memory whole, because a repeat cannot read them again. Frameworks encode
lists and objects as JSON text, which the Bot API accepts only in a form.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

from requests_toolbelt.multipart.encoder import MultipartEncoder  # type: ignore[import-untyped]

from chatlanes import traces
from chatlanes.logs.redaction import keep_tokens_out_of_logs, without_token
from chatlanes.telegram import downloads
from chatlanes.telegram.errors import BotApiError, ChatId, NetworkError, ServerError
from chatlanes.telegram.http_client import FILE_LIMITS, HttpClient, HttpResponse, NoResponseError, read_answer

#: The limit for opening a connection, and for each pause while sending.
CONNECT_TIMEOUT_S = 10.0
#: Telegram usually answers in well under a second, but large files take long.
READ_TIMEOUT_S = 60.0

#: Telegram's own server. Any other server (a local Bot API server, the simulator) gets headers that name the update.
TELEGRAM = "api.telegram.org"
UPDATE_HEADER = "X-Update-Id"
#: The call's place in the update's journal, or "-", followed by " again" if an earlier run left no outcome there.
PLACE_HEADER = "X-Call"

#: A server that restarts is back within a second or two; longer outages are covered by the retry of the update.
PAUSES_S = (0.25, 0.5, 1.0)
#: No repeat begins later than this after the first attempt: a call that took 10 s to fail is likely to fail again.
WITHIN_S = 5.0

#: "… is typing" disappears after 5 s, a draft after 30 s. Both are sent repeatedly while a handler runs, so neither is
#: journaled.
TRANSIENT = frozenset({"sendchataction", "sendmessagedraft", "sendrichmessagedraft"})

T = TypeVar("T")

Upload = tuple[str, bytes | Path]


class Request(NamedTuple):
    """A request that can be sent repeatedly. `data`: the form's fields or the JSON body; only a form has files."""

    data: bytes | dict[str, str]
    files: dict[str, Upload]

    @contextmanager
    def opened(self) -> Iterator[tuple[dict[str, str], Any]]:
        """The headers and the body for `requests`. Raises OSError if a file cannot be opened."""
        if isinstance(self.data, bytes):
            yield {"Content-Type": "application/json"}, self.data
        elif not self.files:
            yield {}, self.data
        else:
            with ExitStack() as stack:
                files = {
                    field: (name, stack.enter_context(content.open("rb")) if isinstance(content, Path) else content)
                    for field, (name, content) in self.files.items()
                }
                form = MultipartEncoder({**self.data, **files})
                yield {"Content-Type": form.content_type}, form


class Prepared(NamedTuple):
    """A call that can be sent any number of times: open files have been read, paths are opened for each request."""

    method: str
    chat: ChatId
    request: Request
    messages: int = 0  #: how many messages it sends to the chat


def prepare(method: str, params: dict[str, Any]) -> Prepared:
    """Encode a call. Raises ValueError and TypeError for parameters that cannot be sent."""
    if not (method.isascii() and method.isalnum()):
        raise ValueError(f"{method!r} is not a method of the Bot API: a method has a name such as sendMessage")
    return Prepared(method, _chat(params), encode(params), messages_of(method, params))


class BotApi:
    """One bot at one Bot API server. `files`: the folder with the files of a local one (BOT_API_FILES)."""

    def __init__(
        self,
        url: str,
        token: str,
        files: Path | None = None,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        read_timeout_s: float = READ_TIMEOUT_S,
        beside: BotApi | None = None,
    ) -> None:
        """`beside`: another bot of this server; its connections are used. TLS of its own takes 0.8 MB."""
        self._beside = beside
        self._url = url.rstrip("/")
        self._token = token
        self._in_path = quote(token, safe=":")
        self._files = files
        self._connect_timeout_s, self._read_timeout_s = connect_timeout_s, read_timeout_s
        self._names_updates = urlsplit(url).hostname != TELEGRAM
        self._process: tuple[int, HttpClient] | None = None
        keep_tokens_out_of_logs()

    @property
    def url(self) -> str:
        """The address of the Bot API server."""
        return self._url

    @property
    def token(self) -> str:
        """For a framework's own bot object. Must not be logged or shown."""
        return self._token

    def has_token(self, token: str) -> bool:
        """True if this is the bot's token."""
        return self._token == token

    def __repr__(self) -> str:
        return f"BotApi(bot {self._token.partition(':')[0]})"

    def call(self, method: str, /, **params: Any) -> Any:
        """Call a Bot API method; returns its `result` as decoded JSON.

        Dicts and lists are sent as JSON; bytes, open files and `pathlib.Path`s are uploaded; None is left out.
        Raises the BotApiError class for the failure.
        """
        call = prepare(method, params)
        return repeated(lambda: self.send(call), reads=is_read_only(method))

    def send(
        self,
        call: Prepared,
        update: str | None = None,
        place: str = "",
        before_send: Callable[[], object] | None = None,
    ) -> Any:
        """Send a call once; returns its result. Raises BotApiError.

        `update`: the update it is made for, `<bot>:<update_id>`; `place`: its place in the update's journal.
        `before_send` is called immediately before the request is sent; if it raises, nothing is sent.
        """
        method, chat, request, _ = call
        headers = {}
        if update and self._names_updates:
            headers = {UPDATE_HEADER: update, PLACE_HEADER: place or "-"}
        path = f"/bot{self._in_path}/{method}"
        with request.opened() as (content_type, body):
            content = {"headers": headers | content_type, "data": body}
            status, answer = self._ask(
                method, chat, "POST", path, HttpResponse.whole, before_send=before_send, **content
            )
        return read_answer(method, chat, status, answer, self._without_token)

    def download(self, file_path: str, to: Path | None = None) -> bytes:
        """Download a file by the `file_path` from getFile. Returns its content, or b"" if it was written `to` a file.

        Raises BotApiError, and OSError if the file cannot be written, or a local Bot API server's file is not
        one that may be read (BOT_API_FILES).
        """
        return repeated(lambda: self._download(file_path, to), reads=True)

    def _download(self, file_path: str, to: Path | None) -> bytes:
        if downloads.is_local(file_path):
            with self._hiding_token():
                return downloads.read_local(file_path, self._files, to, FILE_LIMITS.most_bytes)
        downloads.check_relative(file_path)

        def take(answer: HttpResponse) -> Any:
            if answer.status == HTTPStatus.OK:
                return downloads.store(answer.pieces(), to)
            return read_answer(downloads.METHOD, None, *answer.whole(), self._without_token)

        path = f"/file/bot{self._in_path}/{quote(file_path)}"
        content: bytes = self._ask(downloads.METHOD, None, "GET", path, take, limits=FILE_LIMITS)
        return content

    def check_local(self, file_path: str) -> None:
        """For a framework that reads a file of this machine itself, if the path names one: raises OSError if it may
        not.
        """
        with self._hiding_token():
            if downloads.is_here(file_path):
                downloads.resolved(file_path, self._files)

    def close(self) -> None:
        """Close the connections of this process. The next call opens new ones."""
        process, self._process = self._process, None
        if process and process[0] == os.getpid():
            process[1].close()

    def _ask(
        self, method: str, chat: ChatId, verb: str, path: str, take: Callable[[HttpResponse], T], **options: Any
    ) -> T:
        """Send one request; returns what `take` returns for the response. Raises NetworkError, and whatever `take`
        raises.
        """
        try:
            return self._client().ask(verb, path, take, **options)
        except NoResponseError as error:
            failed = NetworkError(method, chat, self._without_token(str(error)), uncertain=error.is_sent)
        # Raised outside the except block, so that the original error is not attached as context.
        raise failed

    def _client(self) -> HttpClient:
        """The HTTP client of this process. Two threads may each create one, and the second replaces the first.

        It takes no lock, because a child forked while a lock is held could never make a call.
        """
        if self._beside is not None:
            return self._beside._client()
        pid = os.getpid()
        if self._process is None or self._process[0] != pid:
            made = HttpClient(self._url, connect_timeout_s=self._connect_timeout_s, read_timeout_s=self._read_timeout_s)
            self._process = (pid, made)
        return self._process[1]

    @contextmanager
    def _hiding_token(self) -> Iterator[None]:
        """The folder of a bot at a local server has the token as its name."""
        try:
            yield
        except OSError as error:
            failed = type(error)(self._without_token(str(error)))
        else:
            return
        raise failed

    def _without_token(self, text: str) -> str:
        return without_token(text, self._token)


def is_read_only(method: str) -> bool:
    """True if the call has no lasting effect. Method names are case-insensitive; getUpdates confirms updates."""
    name = method.lower()
    return (name.startswith("get") and name != "getupdates") or name in TRANSIENT


def may_repeat(error: BotApiError, *, reads: bool) -> bool:
    """True if a call that failed with this error may be sent again without a second effect."""
    return isinstance(error, NetworkError | ServerError) and (reads or not error.uncertain)


def repeated(send: Callable[[], T], *, reads: bool, wait: Callable[[float], object] = time.sleep) -> T:
    """The result of the first `send` that succeeds. Raises the BotApiError of the last attempt, and whatever `wait`
    raises.
    """
    began_s = time.monotonic()
    for pause_s in PAUSES_S:
        try:
            return send()
        except BotApiError as error:
            if not may_repeat(error, reads=reads) or time.monotonic() - began_s > WITHIN_S:
                raise
            traces.here().event("tried again", error=type(error).__name__)
        wait(pause_s * random.uniform(0.8, 1.2))  # noqa: S311  spreads the repeats of workers that failed together
    return send()


def _chat(params: dict[str, Any]) -> ChatId:
    chat = params.get("chat_id")
    return chat if isinstance(chat, int | str) else None


#: Methods with a chat_id that send no message.
_NO_MESSAGE = frozenset({"sendchataction"})
#: Methods that send one message for each item of this parameter.
_MESSAGE_LISTS = {"sendmediagroup": "media", "copymessages": "message_ids", "forwardmessages": "message_ids"}


def messages_of(method: str, params: dict[str, Any]) -> int:
    """How many messages a call counts as: 0 if it only reads or names no chat. An edit counts as one."""
    name = method.lower()
    if params.get("chat_id") is None or name.startswith("get") or name in _NO_MESSAGE:
        return 0
    return max(1, _length(params.get(_MESSAGE_LISTS.get(name, ""))))


def _length(items: Any) -> int:
    """The length of a list, which frameworks may pass as JSON text. 1 for anything else."""
    if isinstance(items, str) and items.startswith("["):
        try:
            items = json.loads(items)
        except ValueError:
            return 1
    return len(items) if isinstance(items, list | tuple) else 1


def encode(params: dict[str, Any]) -> Request:
    """Encode the parameters; None is left out. Raises TypeError or ValueError for values that JSON cannot represent."""
    given = {name: value for name, value in params.items() if value is not None}
    files = {name: _upload(name, value) for name, value in given.items() if _is_file(value)}
    fields = {name: _attached(value, files) for name, value in given.items() if name not in files}
    if files or _holds_json_text(fields):
        return Request({name: _text(value) for name, value in fields.items()}, files)
    return Request(_json(fields).encode(), {})


def _is_file(value: Any) -> bool:
    return isinstance(value, bytes | bytearray | memoryview | Path) or hasattr(value, "read")


def _upload(name: str, value: Any) -> Upload:
    """File name and content. Telegram requires a name and detects some file types by it. Raises OSError."""
    if isinstance(value, Path):
        value.open("rb").close()  # a missing file fails here, before the call is in the journal
        return value.name, value
    if isinstance(value, bytes | bytearray | memoryview):
        return name, bytes(value)
    own_name, content = getattr(value, "name", None), value.read()
    named = Path(own_name).name if isinstance(own_name, str) and own_name else name
    return named, content.encode() if isinstance(content, str) else bytes(content)


def _attached(value: Any, files: dict[str, Upload]) -> Any:
    """The value with its files replaced by references; the files are added to `files`."""
    if _is_file(value):
        name = f"file{len(files)}"
        files[name] = _upload(name, value)
        return f"attach://{name}"
    if isinstance(value, dict):
        return {key: _attached(inner, files) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_attached(inner, files) for inner in value]
    return value


def _holds_json_text(fields: dict[str, Any]) -> bool:
    """True if a text begins and ends like a JSON object or list. Message text that does so is sent correctly too."""
    texts = [value for value in fields.values() if isinstance(value, str)]
    if not any(text.startswith(("{", "[")) and text.endswith(("}", "]")) for text in texts):
        return False
    try:
        return bool("".join(texts).encode())
    except UnicodeEncodeError:  # half a surrogate pair, which only a JSON body can represent
        return False


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


#: The standard library's encoder, because its output is stable: the journal compares calls with those of an
#: earlier run, which may have used another version. It also encodes half a surrogate pair.
_json = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
