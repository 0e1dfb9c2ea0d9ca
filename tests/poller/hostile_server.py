"""A misbehaving Bot API server: its answers to a method come from a table, byte for byte."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from threading import Event, Thread
from typing import Any

#: The pieces that are written instead of an answer.
Pieces = Callable[[], Iterator[bytes]]

#: Stands for a value in an update that is nested 100,000 deep.
DEEP = "(deep)"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def http(body: bytes, status: bytes = b"200 OK", more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n%s" % (status, len(body), more, body)


def result(found: Any) -> bytes:
    return http(json.dumps({"ok": True, "result": found}).encode())


def flood(retry_after: str) -> bytes:
    body = f'{{"ok":false,"error_code":429,"description":"x","parameters":{{"retry_after":{retry_after}}}}}'
    return http(body.encode(), b"429 Too Many Requests")


CONFLICT = http(b'{"ok":false,"error_code":409,"description":"Conflict"}', b"409 Conflict")

#: Answers of broken servers, proxies and networks.
WIRE: dict[str, Pieces] = {
    "nothing": lambda: iter([]),
    "garbage": lambda: iter([b"SSH-2.0-OpenSSH\r\n"]),
    "an unknown status": lambda: iter([b"HTTP/1.1 abc OK\r\n\r\n"]),
    "a status of 5,000 digits": lambda: iter([b"HTTP/1.1 " + b"2" * 5_000 + b" OK\r\n\r\n"]),
    "HTTP/9": lambda: iter([b"HTTP/9.9 200 OK\r\n\r\n"]),
    "a negative Content-Length": lambda: iter([b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"]),
    "a Content-Length of 5,000 digits": lambda: iter(
        [b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n"]
    ),
    "a negative chunk size": lambda: iter([CHUNKED + b"-5\r\nhello\r\n"]),
    "a chunk size of 5,000 digits": lambda: iter([CHUNKED + b"9" * 5_000 + b"\r\n"]),
    "a malformed chunk size": lambda: iter([CHUNKED + b"zz\r\n"]),
    "malformed gzip": lambda: iter([http(b"not gzip", more=b"Content-Encoding: gzip\r\n")]),
    "a gzip bomb": lambda: iter([http(_bomb(), more=b"Content-Encoding: gzip\r\n")]),
    "endless interim answers": lambda: _endless(b"", b"HTTP/1.1 100 " + b"C" * 9_000 + b"\r\n\r\n"),
    "endless headers": lambda: _endless(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"),
    "endless trailers": lambda: _endless(CHUNKED + b"0\r\n", b"A: " + b"b" * 9_000 + b"\r\n"),
    "an endless body": lambda: _endless(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 1_000),
    "a redirect": lambda: iter([http(b"", b"302 Found", b"Location: http://127.0.0.1:9/\r\n")]),
    "no JSON": lambda: iter([http(b"<html>")]),
    "JSON nested 100,000 deep": lambda: iter([http(b'{"ok":true,"result":' + b"[" * 100_000)]),
    "a number of 5,000 digits": lambda: iter([http(b'{"ok":true,"result":' + b"9" * 5_000 + b"}")]),
    "ok without a result": lambda: iter([http(b'{"ok":true}')]),
    "ok that is a text": lambda: iter([http(b'{"ok":"yes","result":[]}')]),
    "an error code that is a list": lambda: iter([http(b'{"ok":false,"error_code":[401]}')]),
    "a description nested 900 deep": lambda: iter(
        [http(b'{"ok":false,"error_code":500,"description":' + b"[" * 900 + b"]" * 900 + b"}")]
    ),
    "a retry_after that is a text": lambda: iter([flood('"soon"')]),
    "a retry_after that is negative": lambda: iter([flood("-1")]),
    "a retry_after that is NaN": lambda: iter([flood("NaN")]),
}

#: Results of every type except the right one, by method.
OF_ANY_TYPE = {"null": None, "a number": 5, "a text": "x", "a boolean": True, "a list": [], "an object": {}}


def _wrong_results(right: str) -> dict[str, Pieces]:
    wrong = {kind: result(found) for kind, found in OF_ANY_TYPE.items() if kind != right}
    return {f"a result that is {kind}": partial(iter, [answer]) for kind, answer in wrong.items()}


RESULTS: dict[str, dict[str, Pieces]] = {
    "getMe": _wrong_results("an object"),
    "getUpdates": _wrong_results("a list"),
    "getWebhookInfo": _wrong_results("an object"),
}
RESULTS["getWebhookInfo"] |= {
    "a url that is a number": lambda: iter([result({"url": 5})]),
    "a malformed url": lambda: iter([result({"url": "http://["})]),
}
RESULTS["getUpdates"] |= {
    "updates that are numbers": lambda: iter([result([5])]),
    "updates without ids": lambda: iter([result([{"message": {}}])]),
}


@cache
def _bomb() -> bytes:
    """200 KB that decompress to 200 MB."""
    return gzip.compress(bytes(200 << 20))


def _endless(head: bytes, again: bytes) -> Iterator[bytes]:
    yield head
    while True:
        yield again * 100


class HostileServer:
    """Answers `getMe`, `getUpdates` (with `updates`) and `getWebhookInfo` as Telegram would, unless set otherwise."""

    def __init__(self) -> None:
        #: method -> the answer to send instead
        self.instead: dict[str, Pieces] = {}
        self.updates: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self._closed = Event()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while not self._closed.is_set():
                Thread(target=self._answer, args=self._listening.accept()[:1], daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        """Serves one request of a connection."""
        with connection, connection.makefile("rb") as file, suppress(OSError):
            head = iter(lambda: file.readline().strip(), b"")
            method = next(head, b"").split(b" ")[1:2]
            lengths = [int(line.split(b":")[1]) for line in head if line.lower().startswith(b"content-length:")]
            wanted = json.loads(file.read(*lengths)) if lengths else {}
            if method:
                self._answer_to(method[0].rpartition(b"/")[2].decode(), wanted, connection)

    def _answer_to(self, method: str, wanted: dict[str, Any], connection: socket.socket) -> None:
        instead = self.instead.get(method)
        self.asked.append(method)
        for piece in instead() if instead else [self._usual(method, wanted)]:
            connection.sendall(piece)

    def _usual(self, method: str, wanted: dict[str, Any]) -> bytes:
        if method == "getMe":
            return result({"username": "hostile_bot"})
        if method == "getWebhookInfo":
            return result({"url": ""})
        self.updates = [update for update in self.updates if update["update_id"] >= wanted.get("offset", 0)]
        return http(
            json.dumps({"ok": True, "result": self.updates}).replace(f'"{DEEP}"', "[" * 10**5 + "]" * 10**5).encode()
        )
