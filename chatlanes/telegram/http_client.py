"""The HTTP client of every Bot API call: requests to one server, with limits.

Each request is sent at most once, without redirects, cookies and ~/.netrc, and its `before_send` runs immediately
before its bytes are sent. The whole response is limited in time and in size, also after decompression; an error says
whether the request may have arrived. Threads and greenlets may share a client; a forked child may not use its parent's.
"""

from __future__ import annotations

import http.client
import io
import logging
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache
from http import HTTPStatus
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import certifi
import requests
from requests.adapters import HTTPAdapter
from requests.exceptions import InvalidSchema, ProxyError
from requests.utils import get_environ_proxies
from urllib3.exceptions import HTTPError, ReadTimeoutError
from urllib3.util.ssl_ import create_urllib3_context

from chatlanes.logs.foreign_text import one_line
from chatlanes.telegram.errors import BotApiError, ChatId, ServerError, TooManyRequests, refusal
from chatlanes.updates.parsing import read as read_json

T = TypeVar("T")

LONGEST_REASON = 200
#: Idle connections kept per server. Calls in flight are not limited: above this number, connections close after use.
MOST_KEPT = 1024
#: Methods whose requests are prepared once per client.
MOST_PREPARED = 1024
#: A large request is sent in pieces; the connect timeout applies to each.
PIECE_BYTES = 1 << 16
#: A proxy is not used for servers on this machine: a local Bot API server or the simulator.
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

# urllib3 logs a traceback, with data from the server, for each malformed response header.
logging.getLogger("urllib3.connection").setLevel(logging.ERROR)


class ResponseLimits(NamedTuple):
    """The limits of a response. `whole_s`: its duration, in addition to the longest allowed pause; and its size."""

    whole_s: float
    most_bytes: int


class NoResponseError(Exception):
    """No complete response. `is_sent`: the request may have arrived. The message never contains a URL."""

    def __init__(self, reason: str, *, is_sent: bool) -> None:
        super().__init__(reason)
        self.is_sent = is_sent


#: Telegram sends at most 4 MiB.
ANSWER_LIMITS = ResponseLimits(60.0, 32 << 20)
#: A local Bot API server serves files up to 4 GB.
FILE_LIMITS = ResponseLimits(3600.0, 4 << 30)


class HttpResponse:
    """A response whose head has arrived. Reading its body may raise NoResponseError."""

    def __init__(self, response: requests.Response, most_bytes: int) -> None:
        self.status = response.status_code
        self._response, self._most_bytes = response, most_bytes

    def whole(self) -> tuple[int, bytes]:
        """The status and the complete, decompressed body."""
        return self.status, b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """The body, decompressed, in pieces."""
        left = self._most_bytes
        try:
            for piece in self._response.iter_content(PIECE_BYTES):
                if (left := left - len(piece)) < 0:
                    raise _too_large(self._most_bytes)
                yield piece
            return
        except (OSError, ValueError, HTTPError, http.client.HTTPException) as error:
            failed = _no_answer(error, is_sent=True)
        # Raised outside the except block, so that the original error and its URL are not attached as context.
        raise failed


class HttpClient:
    """Uses the proxy and certificates from the environment, as `requests` would, but reads them only once, at the first
    request.
    """

    def __init__(self, url: str, *, connect_timeout_s: float, read_timeout_s: float) -> None:
        """`connect_timeout_s` also limits each pause while sending; `read_timeout_s` each pause while receiving."""
        self._url, self._connect_timeout_s, self._read_timeout_s = url, connect_timeout_s, read_timeout_s
        self._session: requests.Session | None = None
        self._known: dict[tuple[str, str], requests.PreparedRequest] = {}

    def ask(
        self,
        verb: str,
        path: str,
        take: Callable[[HttpResponse], T],
        *,
        before_send: Callable[[], object] | None = None,
        within_s: float | None = None,
        limits: ResponseLimits = ANSWER_LIMITS,
        **content: Any,
    ) -> T:
        """Send a request; returns what `take` returns for the response. Raises NoResponseError, and whatever `take`
        raises.

        `before_send` is called immediately before the request is sent; if it raises, nothing is sent. `within_s`
        replaces the read timeout; `content` is passed to requests.Request.
        """
        request = _Request(before_send, within_s or self._read_timeout_s, limits)
        with self._send(request, verb, path, content) as response:
            return take(HttpResponse(response, limits.most_bytes))

    def close(self) -> None:
        if self._session:
            self._session.close()

    def _send(self, request: _Request, verb: str, path: str, content: dict[str, Any]) -> requests.Response:
        token = _current_request.set(request)
        try:
            if self._session is None:
                self._session = _session_for(self._url)
            return self._session.send(
                self._prepared(self._session, verb, path, **content),
                timeout=(self._connect_timeout_s, request.pause_s),
                allow_redirects=False,
                stream=True,
                proxies=self._session.proxies,
            )
        except (OSError, ValueError, HTTPError) as error:
            failed = _no_answer(error, is_sent=request.is_sent)
        finally:
            _current_request.reset(token)
        raise failed

    def _prepared(
        self,
        session: requests.Session,
        verb: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        data: Any = None,
        **content: Any,
    ) -> requests.PreparedRequest:
        """Preparing a request takes a quarter of its time. So the URL and headers of a path are prepared once, and used
        for each body that needs no encoding.
        """
        if content or not isinstance(data, bytes):
            return session.prepare_request(requests.Request(verb, self._url + path, headers, data=data, **content))
        known = self._known.get((verb, path))
        if known is None:
            if len(self._known) >= MOST_PREPARED:
                self._known.clear()
            known = self._known[verb, path] = session.prepare_request(requests.Request(verb, self._url + path))
        request = known.copy()
        request.headers.update(headers or {})
        request.prepare_body(data, None)
        return request


def _no_answer(error: Exception, *, is_sent: bool) -> NoResponseError:
    """The error with a reason that contains no URL: the outer errors name pools, retries and addresses."""
    causes = list(_causes(error))
    if any(isinstance(cause, TimeoutError | ReadTimeoutError | requests.Timeout) for cause in causes):
        return NoResponseError("no answer in time" if is_sent else "no connection in time", is_sent=is_sent)
    inner = causes[-1]
    reason = (inner.strerror if isinstance(inner, OSError) else None) or str(inner) or type(inner).__name__
    if any(isinstance(cause, InvalidSchema) for cause in causes):
        reason = "HTTPS_PROXY is a SOCKS proxy: pip install pysocks"
    elif any(isinstance(cause, ProxyError) for cause in causes):
        reason = f"the proxy of HTTPS_PROXY: {reason}"
    return NoResponseError(f"no answer ({one_line(reason, LONGEST_REASON)})", is_sent=is_sent)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, outermost first. The context is left out, because it may belong to the caller."""
    yield error
    for inner in (*error.args, getattr(error, "reason", None), error.__cause__):
        if isinstance(inner, BaseException):
            yield from _causes(inner)


class _Request:
    """The state of one request, passed through `requests` to the connection that sends it."""

    def __init__(self, before_send: Callable[[], object] | None, pause_s: float, limits: ResponseLimits) -> None:
        self.before_send, self.pause_s, self.limits = before_send, pause_s, limits
        self.is_sent = False


_current_request: ContextVar[_Request] = ContextVar("request")


class _Connection:
    """Mixed into every kind of urllib3 connection: plain, TLS, or through a proxy."""

    def request(self: Any, *arguments: Any, **options: Any) -> None:
        """Connect first, so that `before_send` runs immediately before the bytes are sent."""
        request = _current_request.get()
        if self.is_closed:
            self.connect()
        if request.before_send:
            request.before_send()
        request.is_sent = True
        super().request(*arguments, **options)  # type: ignore[misc]

    def send(self, data: Any) -> None:
        for at in range(0, len(data), PIECE_BYTES):
            super().send(memoryview(data)[at : at + PIECE_BYTES])  # type: ignore[misc]

    def response_class(self, sock: Any, *arguments: Any, **options: Any) -> http.client.HTTPResponse:
        """Also used for a proxy's response to CONNECT."""
        return _Response(sock, *arguments, **options)


class _Response(http.client.HTTPResponse):
    """A response whose limits cover all of it: interim responses, head, body, trailers."""

    def __init__(self, sock: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_Limited(self.fp.detach(), sock, _current_request.get()))

    def begin(self) -> None:
        super().begin()
        length = self.headers.get("Content-Length")
        if length is not None and not (length.isdecimal() and len(length) < 20):
            raise http.client.HTTPException("malformed Content-Length")
        if self.chunked and length is not None:
            self.will_close = True  # two contradicting lengths: the next bytes cannot be trusted as a response


class _Limited(io.RawIOBase):
    """Reads from a socket within the time and size limits of a response."""

    def __init__(self, raw: Any, sock: Any, request: _Request) -> None:
        self._raw, self._sock, self._pause_s = raw, sock, request.pause_s
        self._until_s = time.monotonic() + request.pause_s + request.limits.whole_s
        self._most_bytes = self._left = request.limits.most_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(min(self._pause_s, left_s))
        count: int | None = self._raw.readinto(buffer)
        self._left -= count or 0
        if self._left < 0:
            raise _too_large(self._most_bytes)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> None:
        """None, so a redirect is an ordinary response; otherwise requests would read its whole body."""


class _Adapter(HTTPAdapter):
    """Shares one TLS context between all connections: loading a bundle takes 20 ms, and urllib3 loads it for each."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._pool: Any = None
        self._tls: dict[str, Any] = {"ssl_context": tls} if tls else {}
        super().__init__(pool_connections=1, pool_maxsize=MOST_KEPT)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: Any) -> None:
        super().init_poolmanager(connections, maxsize, block, **options, **self._tls)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        if proxy.startswith("https:"):
            options["proxy_ssl_context"] = self._tls.get("ssl_context")
        return super().proxy_manager_for(proxy, **options, **self._tls)

    def cert_verify(self, *arguments: Any) -> None:
        """Nothing to do: the TLS context verifies the certificate."""

    def get_connection_with_tls_context(self, *arguments: Any, **options: Any) -> Any:
        """Looked up once: a session has one server and one proxy, and a lookup takes a twentieth of a request."""
        if self._pool is None:
            pool: Any = super().get_connection_with_tls_context(*arguments, **options)
            pool.ConnectionCls = _limited(pool.ConnectionCls)
            self._pool = pool
        return self._pool

    def close(self) -> None:
        """Close the connections now; urllib3 would leave them to the garbage collector."""
        if self._pool:
            self._pool.close()
            self._pool = None
        super().close()


@cache
def _limited(kind: type) -> type:
    return kind if issubclass(kind, _Connection) else type(kind.__name__, (_Connection, kind), {})


def _session_for(url: str) -> requests.Session:
    """Raises OSError, ValueError."""
    session = _Session()
    session.trust_env = False  # otherwise requests reads the environment and ~/.netrc for each request
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    session.headers["Accept-Encoding"] = "gzip"
    place = urlsplit(url)
    if place.hostname not in LOOPBACK:
        session.proxies = get_environ_proxies(url)
    needs_tls = place.scheme == "https" or any(proxy.startswith("https:") for proxy in session.proxies.values())
    session.mount(f"{place.scheme}://", _Adapter(_tls() if needs_tls else None))
    return session


def _tls() -> ssl.SSLContext:
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    name = next((name for name in BUNDLES if os.environ.get(name)), "")
    bundle = Path(os.environ[name] if name else certifi.where())
    if not bundle.exists():
        raise OSError(None, f"{name}={bundle}: no such file")
    if bundle.is_dir():
        context.load_verify_locations(capath=bundle)
    else:
        context.load_verify_locations(cafile=bundle)
    return context


def _too_large(most_bytes: int) -> http.client.HTTPException:
    return http.client.HTTPException(f"the answer is larger than {most_bytes >> 20:,} MiB")


class BotApiAnswer(NamedTuple):
    """A parsed response. `code` is the HTTP status if the response names none of at most three digits; `description` is
    unchanged.
    """

    is_ok: bool
    result: Any
    has_result: bool
    code: int
    description: str | None
    parameters: dict[str, Any]


def parse_answer(status: int, body: bytes) -> BotApiAnswer | None:
    """None if the response is not from a Bot API, but from a proxy or because BOT_API_URL is wrong."""
    try:
        answer = read_json(body)
    except ValueError:
        return None
    if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
        return None
    code, parameters, description = (answer.get(name) for name in ("error_code", "parameters", "description"))
    return BotApiAnswer(
        answer["ok"],
        answer.get("result"),
        "result" in answer,
        code if type(code) is int and 0 <= code <= 999 else status,
        description if isinstance(description, str) else None,
        parameters if isinstance(parameters, dict) else {},
    )


def status_line(status: int) -> str:
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else "unknown status"
    return f"{status} {phrase}"


def read_answer(method: str, chat: ChatId, status: int, body: bytes, hide: Callable[[str], str] = str) -> Any:
    """The `result` of the response. Raises the matching BotApiError; `hide` removes secrets from its description."""
    answer = parse_answer(status, body)
    if answer is None:
        raise _of_no_bot_api(method, chat, status)
    if answer.is_ok:
        return answer.result
    description = one_line(hide(answer.description if answer.description is not None else "no description"))
    raise refusal(method, chat, answer.code, description, answer.parameters)


def _of_no_bot_api(method: str, chat: ChatId, status: int) -> BotApiError:
    """The error for a response that is not from a Bot API. Of its codes only 429 has Telegram's meaning; a 403, for
    example, does not mean that a user blocked the bot.
    """
    kind = TooManyRequests if status == HTTPStatus.TOO_MANY_REQUESTS else ServerError
    return kind(method, chat, f"{status_line(status)}, not the answer of a Bot API (is BOT_API_URL right?)", status)
