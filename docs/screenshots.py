"""make screenshots: the pictures of the sandbox's page in README.md and docs/sandbox.md, in both colours.

Starts a sandbox with chatlanes.demo.tour, writes, floods, kills a worker, and takes the pictures while lanes are full.
Needs Chromium, as the tests do.
"""

from __future__ import annotations

import base64
import re
import struct
import tempfile
import zlib
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Page, expect

from chatlanes_sandbox.simulator import Simulator
from tests.sandbox.page.seeing import ChatRegion, opened, sandbox
from tests.support.browser import browser

HERE = Path(__file__).parent
LAPTOP = {"width": 1440, "height": 900}
#: Both are of one run, so that they show the same.
THEMES = ("light", "dark")
#: Updates of other chats, so that the lanes are full for some seconds.
BACKLOG = 400


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        sandbox(Path(folder), "chatlanes.demo.tour:bot") as running,
        browser(viewport=LAPTOP, color_scheme="light") as window,
    ):
        page = opened(window, running.url, [])
        talk(page)
        fill_the_lanes(page, Simulator(running.url, ""))
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)
            (HERE / f"sandbox-{theme}.png").write_bytes(smaller(page.screenshot(), window))


def talk(page: Page) -> None:
    """A little of everything, in three chats."""
    ann, ben, group = (ChatRegion(page, title) for title in ("Ann", "Ben", "Ann and Ben"))
    ben.write("/start")
    ben.press("Keyboard")
    expect(ben.here.get_by_role("button", name="/hide")).to_be_visible()
    ann.write("/start")
    ann.press("Kill me")
    expect(ann.here.get_by_text(re.compile("^Another process continued"))).to_be_visible()
    ann.press("Fail twice")
    expect(ann.here.get_by_text(re.compile("succeeded. My first message"))).to_be_visible()
    group.write("Shall we go on Saturday?")
    group.here.get_by_role("radio", name="Ben").check()
    group.write("If it is dry. Ask the bot!")
    group.write("/start")
    group.press("Bury")
    group.press("Progress")
    group.press("Count")
    expect(group.here.get_by_text("Counted to 1")).to_be_visible()


def fill_the_lanes(page: Page, simulator: Simulator) -> None:
    """Other chats write much, Ann waits for something slow, and a worker is killed."""
    page.get_by_role("tab", name="Lanes").click()
    ann = ChatRegion(page, "Ann")
    ann.press("Slow")
    for text in ("And what is this?", "Still there?"):
        ann.write(text)
    ChatRegion(page, "Ben").write("I do not wait for Ann.")
    expect(ChatRegion(page, "Ben").message("I do not wait for Ann.")).to_have_count(1)
    simulator.push(*(update(2001 + number % 10, number) for number in range(BACKLOG)))
    expect(page.locator("[data-name=waiting] b")).to_have_text(re.compile("^[23]..$"))
    page.get_by_role("button", name="Kill a worker").click()
    page.get_by_text("while 1 worker was killed").wait_for()
    page.mouse.move(0, 0)


def update(chat: int, number: int) -> dict[str, Any]:
    user = {"id": chat, "is_bot": False, "first_name": "Somebody"}
    where = {"id": chat, "type": "private", "first_name": "Somebody"}
    return {"message": {"message_id": number + 1, "date": 0, "from": user, "chat": where, "text": f"number {number}"}}


PIXELS = """async (png) => {
  const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
  const pen = new OffscreenCanvas(image.width, image.height).getContext("2d");
  pen.drawImage(image, 0, 0);
  return new Uint8Array(pen.getImageData(0, 0, image.width, image.height).data.buffer).toBase64();
}"""


def smaller(png: bytes, window: BrowserContext) -> bytes:
    """The same picture without PNG's filters, which make flat colours and letters larger."""
    blank = window.new_page()
    rgba = base64.b64decode(blank.evaluate(PIXELS, base64.b64encode(png).decode()))
    blank.close()
    width, height = struct.unpack(">II", png[16:24])
    rgb = bytearray(width * height * 3)
    for channel in range(3):
        rgb[channel::3] = rgba[channel::4]
    rows = b"".join(b"\0" + rgb[start : start + width * 3] for start in range(0, len(rgb), width * 3))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return png[:8] + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


if __name__ == "__main__":
    main()
