"""A scripted HTTP server that records its requests, and a Bot API client connected to it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import orjson
import pytest

from chatlanes.telegram import client
from chatlanes.telegram.client import BotApi

TOKEN = "123456:AAbbCCddEEffGGhhIIjjKKllMMnnOOpp"


@dataclass
class ReceivedRequest:
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass
class Answer:
    body: Any = field(default_factory=lambda: {"ok": True, "result": True})
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else orjson.dumps(self.body)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # for concurrent clients; connections beyond the backlog are retried only after seconds


class HttpServer:
    """Set `answer`, or `answering`, which is called for each request; `asked` holds the received requests."""

    def __init__(self) -> None:
        self.asked: list[ReceivedRequest] = []
        self.answer = Answer()
        self.answering: Callable[[ReceivedRequest], Answer | None] = lambda asked: self.answer
        self.http = _Http(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        # A short interval makes stop() fast.
        self._thread = Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.http.shutdown()
        self._thread.join()
        self.http.server_close()

    def _handler(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805  self is the request handler
        class ApiHandler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                asked = ReceivedRequest(self.path, dict(self.headers), body, self.client_address[1])
                server.asked.append(asked)
                answer = server.answering(asked)
                if answer is None:
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            do_GET = do_POST  # noqa: N815

            def log_message(self, *args: Any) -> None:
                pass

        return ApiHandler


@pytest.fixture(autouse=True)
def quick_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSES_S", (0.0, 0.0, 0.0))


@pytest.fixture
def web() -> Iterator[HttpServer]:
    """A scripted server that stands in for the Bot API."""
    server = HttpServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def api(web: HttpServer) -> Iterator[BotApi]:
    api = BotApi(web.url, TOKEN)
    yield api
    api.close()
