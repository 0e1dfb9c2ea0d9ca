"""Pages of other origins, opened in a real browser on the machine of a running sandbox, reach none of its servers."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import requests
from playwright.sync_api import BrowserContext, Page

from tests.sandbox.page.seeing import BrowserSandbox, sandbox
from tests.support.browser import browser
from tests.support.waiting import until

#: Replies to a message with its text.
pytestmark = pytest.mark.slow
ECHO = "def handle(ctx):\n    ctx.reply(ctx.update['message']['text'])\n"
FORGED = "a forged update"


def update(text: str) -> dict[str, object]:
    person = {"id": 7, "is_bot": False, "first_name": "Ann"}
    chat = {"id": 7, "type": "private"}
    return {"message": {"message_id": 1, "date": 0, "chat": chat, "from": person, "text": text}}


def forged(text: str) -> str:
    """The body of Flower's `async-apply`."""
    return json.dumps({"args": [{"update_id": 5, **update(text)}]})


class Servers:
    """Flower and the simulator of a sandbox, as its output names them."""

    def __init__(self, running: BrowserSandbox) -> None:
        self.simulator = running.url
        found = re.search(r"Flower +(http://(?:(\S+):(\S+)@)?(127\.0\.0\.1:(\d+)))\n", running.said)
        assert found
        self.flower_link, self.flower, self.flower_port = found[1], f"http://{found[4]}", found[5]

        self._has_pushed = False

    def answered(self) -> list[str]:
        calls = requests.get(f"{self.simulator}/control/calls?method=sendMessage", timeout=30).json()
        return [call["params"]["text"] for call in calls]

    def has_answered(self, text: str) -> bool:
        """An update that the bot gets on the regular way."""
        if not self._has_pushed:
            self._has_pushed = True
            requests.post(f"{self.simulator}/control/updates", json=[update(text)], timeout=30).raise_for_status()
        return text in self.answered()

    def is_flower_up(self) -> bool:
        try:
            return requests.get(f"{self.flower}/healthcheck", timeout=30).status_code == 401
        except requests.ConnectionError:
            return False


@contextlib.contextmanager
def foreign_site() -> Iterator[str]:
    """The address of an empty page of another site than 127.0.0.1."""

    class Empty(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>elsewhere</title>")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Empty)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://localhost:{server.server_port}/"
    server.shutdown()
    server.server_close()


def fetches(page: Page, url: str, body: str, **options: str) -> None:
    """POST from a script; returns when the answer has arrived, readable by the page or not."""
    page.evaluate(
        "([url, options]) => fetch(url, options).catch(() => null)",
        [url, {"method": "POST", "mode": "no-cors", "credentials": "include", "body": body, **options}],
    )


def posts_a_form(page: Page, url: str, body: str) -> int:
    """A form whose single field makes the body JSON; the status of the page that the browser then shows."""
    name, value = body[:-1] + ', "kwargs": {}, "x": "', '"}'
    script = """([url, name, value]) => {
        const form = document.createElement("form");
        Object.assign(form, { method: "post", enctype: "text/plain", action: url });
        form.append(Object.assign(document.createElement("input"), { name, value }));
        document.body.append(form);
        form.submit();
    }"""
    with page.expect_response(url) as response:
        page.evaluate(script, [url, name, value])
    return response.value.status


def attacks(window: BrowserContext, site: str, servers: Servers) -> None:
    page = window.new_page()
    apply = f"{servers.flower}/api/task/async-apply/tasks.update"
    page.goto(site)
    fetches(page, apply, forged(f"{FORGED} by fetch"))
    fetches(page, f"{servers.simulator}/control/updates", json.dumps([update(f"{FORGED} by the simulator")]))
    status = posts_a_form(page, apply, forged(f"{FORGED} by form"))
    assert status in (401, 403)
    # DNS rebinding: a foreign name resolves to this machine, so that for the browser Flower has the page's own origin
    rebound = window.new_page()
    answer = rebound.goto(f"http://rebound.localhost:{servers.flower_port}/healthcheck")
    assert answer is not None
    assert answer.status == 403
    rebound.close()
    page.close()


@pytest.mark.exhaustive
def test_no_foreign_page_can_use_flower_or_the_simulator(tmp_path: Path) -> None:
    (tmp_path / "echo_bot.py").write_text(ECHO)
    with sandbox(tmp_path, "echo_bot:handle") as running, browser() as window, foreign_site() as site:
        servers = Servers(running)
        until(servers.is_flower_up)
        # When a foreign page tries all it can, before its user has looked at Flower and after
        attacks(window, site, servers)
        # Then the link that the sandbox prints opens Flower without a question
        flower = window.new_page()
        opened = flower.goto(servers.flower_link)
        assert opened is not None
        assert opened.status == 200
        flower.locator("#workers-table").get_by_text("worker1@").wait_for()
        flower.goto(f"{servers.flower}/tasks")
        flower.locator("#tasks-table").wait_for()
        attacks(window, site, servers)
        # And the bot runs what it gets on the regular way, and nothing else
        until(lambda: servers.has_answered("a true update"))
        assert servers.answered() == ["a true update"]
        assert requests.get(f"{servers.flower}/api/tasks", timeout=30).status_code == 401
