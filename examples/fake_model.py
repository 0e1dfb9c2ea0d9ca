"""A language model that repeats what it is told, for trying a bot without a real one.

It answers `POST /v1/chat/completions` with server-sent events, as OpenAI's API and most local model servers do. Run it
with `python -m examples.fake_model`; examples/llm_bot.py starts one by itself.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: Words a second.
SPEED = 12


def words_of(messages: list[dict[str, str]]) -> Iterator[str]:
    """The answer to a conversation, word by word."""
    lines = messages[-1]["content"].splitlines()
    yield f"You wrote {len(lines)} line{'s' if len(lines) > 1 else ''} and "
    yield f"this is answer {sum(message['role'] == 'user' for message in messages)}.\n"
    for number, line in enumerate(lines, 1):
        yield f"\n{number}. "
        for word in f"“{line}” deserves a long answer, so this one goes on for a few more words.".split():
            yield f"{word} "


class ChatHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # with chunks, so that a client gets each word at once

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions" or not asked.get("stream"):
            self.send_error(400, 'ask for /v1/chat/completions with "stream": true')
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for word in words_of(asked["messages"]):
                self._send(json.dumps({"choices": [{"index": 0, "delta": {"content": word}}]}))
                time.sleep(1 / SPEED)
            self._send("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:  # the client has left, because its answer was interrupted
            self.close_connection = True

    def _send(self, data: str) -> None:
        event = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))

    def log_message(self, *_args: object) -> None:
        """A line for each request would hide the bot's own lines."""


def start(port: int = 0) -> str:
    """Serve in a thread of this process; returns the URL. `port` 0: any free port."""
    server = ThreadingHTTPServer(("127.0.0.1", port), ChatHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


if __name__ == "__main__":
    sys.stderr.write(f"MODEL_URL={start(8090)}\n")
    threading.Event().wait()
