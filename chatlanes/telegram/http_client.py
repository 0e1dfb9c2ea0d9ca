"""The HTTP client of every Bot API call: requests to one server, with limits (http_session.py).

Each request is sent at most once, without redirects, cookies and ~/.netrc. The response is limited in time and in size,
also after decompression; an error says whether the request may have arrived. Threads and greenlets may share a client;
a forked child may not use its parent's.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import requests
from urllib3.exceptions import HTTPError, ReadTimeoutError

from chatlanes.logs.foreign_text import one_line
from chatlanes.telegram.http_session import PIECE_BYTES, HttpRequest, Limits, current_request, session_for, too_large

T = TypeVar("T")

LONGEST_REASON = 200


class NoAnswerError(Exception):
    """No complete response. `is_sent`: the request may have arrived. The message never contains a URL."""

    def __init__(self, reason: str, *, is_sent: bool) -> None:
        super().__init__(reason)
        self.is_sent = is_sent


#: Telegram sends at most 4 MiB.
ANSWER_LIMITS = Limits(60.0, 32 << 20)
#: A local Bot API server serves files up to 4 GB.
FILE_LIMITS = Limits(3600.0, 4 << 30)


class HttpResponse:
    """A response whose head has arrived. Reading its body may raise NoAnswerError."""

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
                    raise too_large(self._most_bytes)
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

    def ask(
        self,
        verb: str,
        path: str,
        take: Callable[[HttpResponse], T],
        *,
        before_send: Callable[[], object] | None = None,
        within_s: float | None = None,
        limits: Limits = ANSWER_LIMITS,
        **content: Any,
    ) -> T:
        """Send a request; returns what `take` returns for the response. Raises NoAnswerError, and whatever `take`
        raises.

        `before_send` is called immediately before the request is sent; if it raises, nothing is sent. `within_s`
        replaces the read timeout; `content` is passed to requests.Session.request.
        """
        request = HttpRequest(before_send, within_s or self._read_timeout_s, limits)
        with self._send(request, verb, path, content) as response:
            return take(HttpResponse(response, limits.most_bytes))

    def close(self) -> None:
        if self._session:
            self._session.close()

    def _send(self, request: HttpRequest, verb: str, path: str, content: dict[str, Any]) -> requests.Response:
        token = current_request.set(request)
        try:
            if self._session is None:
                self._session = session_for(self._url)
            return self._session.request(
                verb,
                self._url + path,
                timeout=(self._connect_timeout_s, request.pause_s),
                allow_redirects=False,
                stream=True,
                **content,
            )
        except (OSError, ValueError, HTTPError) as error:
            failed = _no_answer(error, is_sent=request.is_sent)
        finally:
            current_request.reset(token)
        raise failed


def _no_answer(error: Exception, *, is_sent: bool) -> NoAnswerError:
    """The error with a reason that contains no URL: the outer errors name pools, retries and addresses."""
    causes = list(_causes(error))
    if any(isinstance(cause, TimeoutError | ReadTimeoutError | requests.Timeout) for cause in causes):
        return NoAnswerError("no answer in time" if is_sent else "no connection in time", is_sent=is_sent)
    inner = causes[-1]
    reason = (inner.strerror if isinstance(inner, OSError) else None) or str(inner) or type(inner).__name__
    return NoAnswerError(f"no answer ({one_line(reason, LONGEST_REASON)})", is_sent=is_sent)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, outermost first. The context is left out, because it may belong to the caller."""
    yield error
    for inner in (*error.args, getattr(error, "reason", None), error.__cause__):
        if isinstance(inner, BaseException):
            yield from _causes(inner)
