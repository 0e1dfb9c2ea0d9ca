"""A sandbox, and its page as a person sees it in a real browser.

Collects every complaint of the browser, and ends the sandbox with all its parts.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import BrowserContext, Locator, Page

from celery_lanes.embedded_server import free_port
from tests.support.waiting import until

#: Settings of the developer that must not reach the sandbox.
THEIRS = ("BOT_TOKEN", "REDIS_URL", "BOT", "BOTS")


class BrowserSandbox:
    """`chatlanes sandbox` in a folder of its own."""

    def __init__(self, folder: Path, bot: str, **settings: str) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = folder / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "chatlanes_sandbox", "--bot", bot, "--port-simulator", str(port)],
                cwd=folder,
                env={name: value for name, value in os.environ.items() if name not in THEIRS}
                | {"LEASE_SECONDS": "3", **settings},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        until(lambda: re.search(rf"Page +{self.url}\n", self.said) or self._process.poll() is not None)
        assert self._process.poll() is None, self.said

    @property
    def said(self) -> str:
        return self._log.read_text()

    def stop(self) -> None:
        """Twice is harmless."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(60)


@contextmanager
def sandbox(folder: Path, bot: str, **settings: str) -> Iterator[BrowserSandbox]:
    running = BrowserSandbox(folder, bot, **settings)
    try:
        yield running
    finally:
        running.stop()


def opened(window: BrowserContext, url: str, complaints: list[str]) -> Page:
    """The page, once it knows its chats."""
    page = window.new_page()
    page.on("console", lambda message: complaints.append(message.text) if message.type != "log" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(url)
    page.locator(".column").first.wait_for()
    return page


class ChatRegion:
    """One chat in the browser."""

    def __init__(self, page: Page, title: str) -> None:
        self.page = page
        self.here = page.get_by_role("region", name=f"Chat {title}", exact=True)
        self.field = self.here.get_by_role("textbox")

    def write(self, text: str) -> None:
        self.field.fill(text)
        self.field.press("Enter")

    def message(self, text: str) -> Locator:
        """The newest message with this text, by any author."""
        return self.here.get_by_role("article").filter(has=self.page.get_by_text(text, exact=True)).last

    def press(self, button: str) -> None:
        self.here.get_by_role("button", name=button, exact=True).last.click()

    def look_at(self, text: str) -> Locator:
        """Opens the update panel of a message."""
        self.message(text).get_by_role("button", name=re.compile("^Details of message")).click()
        return self.page.get_by_role("tabpanel", name="Update")
