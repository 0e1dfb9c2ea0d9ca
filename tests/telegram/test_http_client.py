"""HTTP answers byte by byte: each is parsed correctly or refused, and none takes longer than its limit."""

from __future__ import annotations

import gzip
import re
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from threading import Event, Thread

import pytest
import trustme

from chatlanes.telegram import http_client
from chatlanes.telegram.client import BotApi, prepare
from chatlanes.telegram.errors import NetworkError, ServerError
from chatlanes.telegram.http_client import HttpClient, HttpResponse, NoResponseError, ResponseLimits
from tests.support.http_server import HttpServer

YES = b'{"ok": true, "result": true}'
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\n" + YES
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
GZIP = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
PACKED = gzip.compress(YES)


#: Instructs the server to close the connection after the answer before, though another could follow.
HANG_UP = b""


class Wire:
    """Answers each request with the next of `answers`; None resets the connection. Closes it where HTTP requires."""

    def __init__(self) -> None:
        self.answers: list[bytes | None] = []
        self.bodies: list[bytes] = []
        self.heads: list[list[bytes]] = []
        self.connections = 0
        self.slowly_s = 0.0
        self.hung_up = Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            # A refused request is not read to its end.
            with connection, connection.makefile("rb") as file, suppress(OSError):
                self._answer(connection, file)
            self.hung_up.set()

    def _answer(self, connection: socket.socket, file) -> None:
        while True:
            head = list(takewhile(lambda line: line.strip(), file))
            if not head:
                return
            self.heads.append(head)
            lengths = [int(line.split()[1]) for line in head if line.startswith(b"Content-Length")]
            self.bodies.append(self._body(file, *lengths))
            answer = self.answers.pop(0)
            if answer is None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            connection.sendall(answer)
            if self.answers[:1] == [HANG_UP] or not (b"Length" in answer or b"chunked" in answer):
                return

    def _body(self, file, length: int = 0) -> bytes:
        body = b""
        while len(body) < length:
            time.sleep(self.slowly_s)
            body += file.read(min(1 << 20, length - len(body)))
        return body


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


def asked(wire: Wire, *answers: bytes | None, **params: object) -> object:
    """Makes a call for each answer on one client; returns the last result."""
    wire.answers = list(answers)
    api = BotApi(wire.url, "1:x", read_timeout_s=10.0)
    call = prepare("sendMessage", params)
    try:
        return [api.send(call) for _ in answers][-1]
    finally:
        api.close()


@pytest.mark.parametrize(
    "answer",
    [
        PLAIN,
        CHUNKED + b"1c;x=y\r\n" + YES + b"\r\n0\r\nLast: one\r\n\r\n",
        CHUNKED + b"".join(b"1\r\n%c\r\n" % byte for byte in YES) + b"0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN,
        PLAIN.replace(b"\r\n", b"\n"),
        GZIP % len(PACKED) + PACKED,
    ],
)
def test_complete_answer_keeps_the_connection(wire: Wire, answer: bytes) -> None:
    assert asked(wire, answer, answer, PLAIN) is True
    assert wire.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\n" + YES,
        b"HTTP/1.0 200 OK\r\nContent-Length: 28\r\n\r\n" + YES,
        PLAIN.replace(b"\r\n\r\n", b"\r\nconnection: Close\r\n\r\n"),
        # It is undefined which of the two lengths is right.
        PLAIN.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n1c\r\n") + b"\r\n0\r\n\r\n",
    ],
)
def test_other_answers_close_the_connection(wire: Wire, answer: bytes) -> None:
    assert asked(wire, answer, PLAIN) is True
    assert wire.connections == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "Connection reset by peer"),
        (b"SSH-2.0-OpenSSH\x1b[1m\r\n", "SSH-2.0-OpenSSH\\u001b[1m\\u000d\\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "malformed Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n", "malformed Content-Length"),
        (CHUNKED + b"x\r\n", "InvalidChunkLength(got length b'x\\r\\n', 0 bytes read)"),
        (CHUNKED + b"-5\r\n", "read length must be non-negative or -1"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 101, "got more than 100 headers"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70_000, "got more than 65536 bytes when reading header line"),
        (b"", "Remote end closed connection without response"),
    ],
)
def test_incomplete_answer_is_uncertain(wire: Wire, answer: bytes | None, reason: str) -> None:
    with pytest.raises(NetworkError) as caught:
        asked(wire, answer)
    assert caught.value.uncertain is True
    assert str(caught.value) == f"sendMessage: no answer ({reason})"


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nConte", GZIP % 4 + PACKED[:4]])
def test_truncated_answer_is_a_server_error(wire: Wire, answer: bytes) -> None:
    with pytest.raises(ServerError) as caught:
        asked(wire, answer)
    assert caught.value.uncertain is True


def test_answers_may_be_compressed(wire: Wire) -> None:
    assert asked(wire, GZIP % len(PACKED) + PACKED) is True
    assert b"Accept-Encoding: gzip\r\n" in wire.heads[0]


def test_each_request_to_a_path_has_its_own_headers_and_body(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a client that keeps what it has prepared for one path
    monkeypatch.setattr(http_client, "MOST_PREPARED", 1)
    wire.answers = [PLAIN] * 6
    client = HttpClient(wire.url, connect_timeout_s=10.0, read_timeout_s=10.0)
    # When requests to two paths differ in everything, and one is a form
    for path, content in [
        ("/a", {"data": b"12345", "headers": {"X-Call": "1"}}),
        ("/a", {"data": b"1", "headers": {"X-Update-Id": "7"}}),
        ("/a", {"data": {"name": "value"}}),
        ("/b", {"data": b""}),
        ("/a", {"data": b"123", "headers": {"Accept-Encoding": "identity"}}),
        ("/a", {"data": b"12"}),
    ]:
        assert client.ask("POST", path, HttpResponse.whole, **content) == (200, YES)
    client.close()
    # Then nothing of a request is in another one
    assert wire.bodies == [b"12345", b"1", b"name=value", b"", b"123", b"12"]
    assert [head[0].split()[1] for head in wire.heads] == [b"/a", b"/a", b"/a", b"/b", b"/a", b"/a"]
    own = (b"Accept-", b"Content-", b"X-")
    sent = [sorted(line.strip() for line in head if line.startswith(own)) for head in wire.heads]
    assert sent == [
        [b"Accept-Encoding: gzip", b"Content-Length: 5", b"X-Call: 1"],
        [b"Accept-Encoding: gzip", b"Content-Length: 1", b"X-Update-Id: 7"],
        [b"Accept-Encoding: gzip", b"Content-Length: 10", b"Content-Type: application/x-www-form-urlencoded"],
        [b"Accept-Encoding: gzip", b"Content-Length: 0"],
        [b"Accept-Encoding: identity", b"Content-Length: 3"],
        [b"Accept-Encoding: gzip", b"Content-Length: 2"],
    ]


SMALL = ResponseLimits(60.0, 1 << 20)


def ask(url: str, *, pause_s: float = 10.0, limits: ResponseLimits = SMALL) -> tuple[int, bytes]:
    client = HttpClient(url, connect_timeout_s=10.0, read_timeout_s=pause_s)
    try:
        return client.ask("POST", "/", HttpResponse.whole, limits=limits)
    finally:
        client.close()


LARGE = b"a" * (2 << 20)


@pytest.mark.parametrize(
    "answer",
    [
        PLAIN.replace(b"28", b"%d" % len(LARGE)) + LARGE,
        CHUNKED + (b"10000\r\n" + LARGE[: 1 << 16] + b"\r\n") * 32,
        b"HTTP/1.1 200 OK\r\n\r\n" + LARGE,
        GZIP % len(gzip.compress(LARGE)) + gzip.compress(LARGE),
        b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000,
        CHUNKED + b"0\r\n" + b"Trailer: x\r\n" * 200_000,
    ],
    ids=["length", "chunks", "until closed", "gzip", "interim answers", "trailers"],
)
def test_answer_size_is_limited(wire: Wire, answer: bytes) -> None:
    wire.answers = [answer]
    with pytest.raises(NoResponseError, match="the answer is larger than 1 MiB") as caught:
        ask(wire.url)
    assert caught.value.is_sent


def test_redirect_is_neither_followed_nor_read(wire: Wire) -> None:
    packed = gzip.compress(LARGE)
    wire.answers = [b"HTTP/1.1 302 Found\r\nLocation: /b\r\n" + (GZIP % len(packed) + packed).partition(b"\r\n")[2]]
    client = HttpClient(wire.url, connect_timeout_s=10.0, read_timeout_s=10.0)
    status, is_read = client.ask("POST", "/a", lambda answer: (answer.status, answer._response._content_consumed))
    client.close()
    assert (status, is_read, len(wire.heads)) == (302, False, 1)


@pytest.mark.parametrize(
    ("head", "again"),
    [
        (b"HTTP/1.1 200 O", b"K"),
        (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"a"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"a"),
        (CHUNKED, b"1\r\na\r\n"),
        (CHUNKED + b"0\r\n", b"A: b\r\n"),
    ],
    ids=["status line", "head", "interim answers", "length", "until closed", "chunks", "trailers"],
)
def test_answer_duration_is_limited(head: bytes, again: bytes) -> None:
    with trickle(head, again) as url, pytest.raises(NoResponseError, match="no answer in time") as caught:
        ask(url, pause_s=0.5, limits=ResponseLimits(0.5, 1 << 20))
    assert caught.value.is_sent


def test_proxy_answer_duration_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    with trickle(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        with pytest.raises(NoResponseError, match="no connection in time") as caught:
            ask("https://bot-api.test", pause_s=0.5, limits=ResponseLimits(0.5, 1 << 20))
    assert not caught.value.is_sent


@contextmanager
def trickle(head: bytes, again: bytes) -> Iterator[str]:
    """The address of a server that answers with `head`, and then with `again` ten times a second, endlessly."""
    over = Event()

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(head)
            while not over.wait(0.1):
                connection.sendall(again)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        over.set()
        thread.join()


@pytest.mark.slow
def test_slow_upload_may_exceed_the_connect_timeout(wire: Wire) -> None:
    """The timeout applies to each piece of a request, not to the whole request."""
    wire.slowly_s, wire.answers = 0.2, [PLAIN]
    api = BotApi(wire.url, "1:x", connect_timeout_s=1.0)
    assert api.call("sendDocument", document=bytes(16 << 20)) is True
    api.close()
    assert len(wire.bodies[0]) > 16 << 20


def test_interrupted_answer_is_uncertain(wire: Wire) -> None:
    wire.answers = [PLAIN.replace(b"28", b"29"), None]
    api = BotApi(wire.url, "1:x", read_timeout_s=0.2)
    with pytest.raises(NetworkError, match="no answer in time") as caught:
        api.call("sendMessage")
    api.close()
    assert caught.value.uncertain is True


def test_closed_connection_is_not_reused(wire: Wire) -> None:
    # Given a kept connection that the server closes, as after an idle minute
    wire.answers = [PLAIN, HANG_UP]
    api = BotApi(wire.url, "1:x")
    assert api.call("sendMessage") is True
    assert wire.hung_up.wait(60)
    wire.answers = [PLAIN]
    # When a call follows that must not be repeated, then it uses a new connection
    assert api.call("sendMessage") is True
    assert wire.connections == 2
    api.close()


def test_large_upload_arrives_whole(wire: Wire) -> None:
    content = bytes(range(256)) * 4_000
    assert asked(wire, PLAIN, PLAIN, document=content) is True
    assert all(content in body for body in wire.bodies)
    assert wire.connections == 1


def test_credentials_and_path_of_the_url_are_sent(wire: Wire) -> None:
    wire.answers = [PLAIN]
    api = BotApi(wire.url.replace("//", "//me:secret@") + "/prefix/", "1:x")
    assert api.call("sendMessage") is True
    api.close()
    assert wire.heads[0][0].startswith(b"POST /prefix/bot1:x/sendMessage ")
    assert b"Authorization: Basic bWU6c2VjcmV0\r\n" in [line.title()[:21] + line[21:] for line in wire.heads[0]]


class Proxy:
    """Answers each CONNECT with `says`, and tunnels to the server after a 200."""

    def __init__(self, server: HttpServer, says: bytes = b"200 Here you are") -> None:
        self.heads: list[bytes] = []
        self._server, self._says = server, says
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += connection.recv(1)
            self.heads.append(head)
            connection.sendall(b"HTTP/1.1 " + self._says + b"\r\n\r\n")
            if not self._says.startswith(b"200"):
                connection.close()
                continue
            there = socket.create_connection(self._server.http.server_address[:2])
            for source, to in ((connection, there), (there, connection)):
                Thread(target=_pump, args=(source, to), daemon=True).start()


def _pump(source: socket.socket, to: socket.socket) -> None:
    with source, to, suppress(OSError):
        while data := source.recv(1 << 16):
            to.sendall(data)


@pytest.fixture
def secure(web: HttpServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HttpServer:
    """The server with TLS, under a name that only a proxy can resolve, with a trusted authority."""
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("bot-api.test").configure_cert(tls)
    web.http.socket = tls.wrap_socket(web.http.socket, server_side=True, do_handshake_on_connect=False)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    monkeypatch.delenv("NO_PROXY", raising=False)
    return web


def test_certificates_are_checked_through_a_proxy(secure: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy(secure)
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@{proxy.address}")
    api = BotApi("https://bot-api.test", "1:x")
    assert [api.call("getMe"), api.call("getMe")] == [True, True]
    api.close()
    [head] = proxy.heads  # one tunnel for both calls, and no token outside TLS
    assert head.startswith(b"CONNECT bot-api.test:443 ")
    assert b"Basic bWU6c2VjcmV0" in head
    assert b"1:x" not in head
    assert [asked.path for asked in secure.asked] == ["/bot1:x/getMe"] * 2


@pytest.mark.parametrize(
    ("says", "name", "reason"),
    [
        (b"200 OK", "other.test", "certificate verify failed: Hostname mismatch"),
        (b"403 Forbidden", "bot-api.test", "Tunnel connection failed: 403 Forbidden"),
    ],
)
def test_unreachable_server_behind_a_proxy_is_not_uncertain(
    secure: HttpServer, monkeypatch: pytest.MonkeyPatch, says: bytes, name: str, reason: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", Proxy(secure, says).address)
    with pytest.raises(NetworkError, match=reason) as caught:
        BotApi(f"https://{name}", "1:x").send(prepare("sendMessage", {}))
    assert caught.value.uncertain is False
    assert secure.asked == []


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem", "REQUESTS_CA_BUNDLE=/nowhere/ca.pem: no such file"),
        ("HTTPS_PROXY", "socks5h://127.0.0.1:1", "HTTPS_PROXY is a SOCKS proxy: pip install pysocks"),
    ],
)
def test_unusable_setting_is_reported(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, reason: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(NetworkError, match=re.escape(reason)):
        BotApi("https://bot-api.test", "1:x").send(prepare("sendMessage", {}))
