"""make screenshots: the pictures of the sandbox's page in README.md and docs/sandbox.md, in both colours.

Starts a sandbox with examples.tour, writes, floods, kills a worker, and takes the pictures while the lanes are full.
Needs Chromium, as the tests do.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser import browser
from tests.page.seeing import Chat, opened, sandbox

HERE = Path(__file__).parent
LAPTOP = {"width": 1440, "height": 900}
#: Both are of one run, so that they show the same.
THEMES = ("light", "dark")


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        sandbox(Path(folder), "examples.tour:bot") as running,
        browser(viewport=LAPTOP, color_scheme="light") as window,
    ):
        page = opened(window, running.url, [])
        talk(page)
        flood(page)
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)
            page.screenshot(path=HERE / f"sandbox-{theme}.png")


def talk(page: Page) -> None:
    """A little of everything, in three chats."""
    ann, ben, group = (Chat(page, title) for title in ("Ann", "Ben", "Ann and Ben"))
    for chat in (ann, ben, group):
        chat.write("/start")
        expect(chat.message("Kill me")).to_be_visible()
    ann.press("Fail twice")
    ben.press("Photo")
    group.press("Bury")
    expect(ben.here.get_by_role("img", name="Photo")).to_be_visible()
    ben.press("Kill me")
    group.here.get_by_role("radio", name="Ben").check()
    group.write("Is anybody there?")
    expect(group.message("Is anybody there?")).to_have_count(1)
    expect(ben.here.get_by_text(re.compile("^Another one went on"))).to_be_visible()
    expect(ann.here.get_by_text(re.compile("worked. My first message"))).to_be_visible()


def flood(page: Page) -> None:
    page.get_by_role("tab", name="Lanes").click()
    page.get_by_role("button", name="Flood 500").click()
    expect(page.locator("[data-name=waiting] b")).not_to_have_text("0")
    page.get_by_role("button", name=re.compile("^kill -9")).first.click()
    page.get_by_text("while 1 worker was killed").wait_for()


if __name__ == "__main__":
    main()
