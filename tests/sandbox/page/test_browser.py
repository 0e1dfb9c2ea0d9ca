"""The sandbox's page in a real browser, with real workers."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.sandbox.page.seeing import ChatRegion, opened, sandbox
from tests.support import ROOT
from tests.support.browser import browser

HERE = Path(__file__).parent
PHOTO = ROOT / "chatlanes/demo/photo.png"
pytestmark = pytest.mark.slow
SCRIPT = "<script>document.title = 'broken'</script> <b>x</b>"


def test_a_message_shows_its_update_and_answer(tmp_path: Path) -> None:
    shutil.copy(HERE / "story_bot.py", tmp_path)
    complaints: list[str] = []
    # Given a sandbox with a bot, and its page on a laptop
    with (
        sandbox(tmp_path, "story_bot:bot") as running,
        browser(viewport={"width": 1440, "height": 900}, color_scheme="light") as window,
    ):
        page = opened(window, running.url, complaints)
        # When Ann writes, then the bot's answer comes, and texts are texts
        ann = ChatRegion(page, "Ann")
        ann.write(SCRIPT)
        expect(ann.message(f"You wrote: {SCRIPT}")).to_be_visible()
        presses_buttons(page, ann)
        sends_a_photo(ann)
        edits_what_was_said(ann)
        fails_and_replays(page, ChatRegion(page, "Ben"))
        two_write_in_a_group(page, ChatRegion(page, "Ann and Ben"))
        shows_a_broadcast(page, ann)
        # And a flood while a worker is killed loses nothing
        kills_a_worker_under_a_flood(page)
        # And a reload has all chats, a phone and the dark have the same
        page.reload()
        ben = ChatRegion(page, "Ben")
        ben.press("Earlier messages")
        expect(ben.message("Just before.")).to_be_attached()
        makes_a_chat(page)
        fits_a_phone(page)
        assert complaints == []
        # And when the sandbox is stopped, the page says so
        running.stop()
        expect(page.get_by_role("alert")).to_contain_text("The sandbox does not answer.")
        # No text was ever run
        expect(page).to_have_title(re.compile("sandbox"))


BROKEN = "import nothing_of_this_name"
FIXED = "def handle(ctx):\n    ctx.reply('Fixed.')"


@pytest.mark.exhaustive
def test_an_import_error_is_shown_until_it_is_fixed(tmp_path: Path) -> None:
    complaints: list[str] = []
    # Given a bot that cannot be imported
    (tmp_path / "my_bot.py").write_text(BROKEN)
    with sandbox(tmp_path, "my_bot:handle") as running, browser() as window:
        page = opened(window, running.url, complaints)
        # Then the page says so, with the traceback
        trouble = page.get_by_role("alert")
        expect(trouble).to_contain_text("my_bot:handle does not import.")
        trouble.get_by_role("button", name="Traceback").click()
        expect(page.get_by_role("tabpanel", name="Problems")).to_contain_text(BROKEN)
        # And messages wait until the bot is fixed
        ann = ChatRegion(page, "Ann")
        ann.write("Are you there?")
        (tmp_path / "my_bot.py").write_text(FIXED)
        expect(ann.message("Fixed.")).to_be_visible()
        expect(trouble).to_be_hidden()
        assert complaints == []


COUNTING = "def handle(ctx):\n    ctx.reply(f'{len(ctx.photos)} photos: {ctx.text}')"


@pytest.mark.exhaustive
def test_several_photos_are_sent_as_one_album(tmp_path: Path) -> None:
    complaints: list[str] = []
    # Given a bot that gets each album as one run
    (tmp_path / "my_bot.py").write_text(COUNTING)
    with sandbox(tmp_path, "my_bot:handle", COLLECT="albums") as running, browser() as window:
        ann = ChatRegion(opened(window, running.url, complaints), "Ann")
        photos = ann.here.get_by_label("Photo", exact=True)
        # When Ann picks more photos than an album has, or another file among them, then the page says so
        photos.set_input_files([PHOTO] * 11)
        expect(ann.page.get_by_text("An album has at most 10 photos.")).to_be_visible()
        photos.set_input_files([PHOTO, HERE / "story_bot.py"])
        expect(ann.page.get_by_text("story_bot.py is not a picture; the page sends only photos.")).to_be_visible()
        # When she picks three, and writes below them
        photos.set_input_files([PHOTO] * 3)
        expect(ann.here.get_by_text("An album of 3 photos, with what you write below it")).to_be_visible()
        ann.write("my holiday")
        # Then the bot answers the whole album once, and each photo is shown
        expect(ann.message("3 photos: my holiday")).to_be_visible()
        expect(ann.here.get_by_role("img", name="Photo")).to_have_count(3)
        # And they are one grid: two of them beside each other
        album = ann.here.locator(".album").get_by_role("img", name="Photo")
        expect(album).to_have_count(3)
        tops = [box["y"] for box in map(Locator.bounding_box, album.all()) if box]
        assert tops[0] < tops[1] == tops[2]
        expect(ann.here.get_by_text(re.compile(r"^\d+ photos: "))).to_have_count(1)
        # And a single photo is not an album
        photos.set_input_files(PHOTO)
        ann.field.press("Enter")
        expect(ann.message("1 photos:")).to_be_visible()
        assert complaints == []


@pytest.mark.exhaustive
def test_with_slow_handlers_a_kill_hits_a_handler_that_runs(tmp_path: Path) -> None:
    complaints: list[str] = []
    (tmp_path / "my_bot.py").write_text("def handle(ctx):\n    ctx.reply(f'Attempt {ctx.attempt}')")
    with sandbox(tmp_path, "my_bot:handle") as running, browser() as window:
        page = opened(window, running.url, complaints)
        ann = ChatRegion(page, "Ann")
        lanes = page.get_by_role("tabpanel", name="Lanes")
        expect(lanes).to_contain_text("No worker was killed yet.")
        # Given slow handlers, of which one runs
        slow = lanes.get_by_role("switch", name="Slow handlers")
        slow.click()
        expect(slow).to_be_checked()
        ann.write("hello")
        expect(figure(page, "running")).to_have_text("1")
        # When a worker is killed, then it is the one that runs it: another one makes its second attempt
        lanes.get_by_role("button", name="Kill a worker").click()
        expect(lanes).to_contain_text("while 1 worker was killed")
        slow.click()
        expect(ann.message("Attempt 2")).to_be_visible()
        timeline = ann.look_at("hello").get_by_role("region", name="Timeline")
        expect(timeline).to_contain_text("its worker died")
        expect(timeline).to_contain_text(re.compile(r"started on worker\d, attempt 2"))
        # And the call that was on its way has not arrived: there is one answer
        expect(ann.here.get_by_text(re.compile("^Attempt"))).to_have_count(1)
        page.get_by_role("tab", name="Lanes").click()
        for name in ("lost", "out_of_order", "repeated"):
            expect(figure(page, name)).to_have_text("0")
        assert complaints == []


STOPPABLE = """
import time
def handle(ctx):
    ctx.reply(f"Thinking of {len(ctx.updates)} …")
    while "think" in ctx.texts[-1]:
        time.sleep(0.05)
        if ctx.interrupted:
            break
    if "fail" in ctx.text and ctx.attempt == 1:
        raise ValueError("no")
    ctx.reply(ctx.text)
"""


@pytest.mark.exhaustive
def test_a_stopped_run_is_not_a_failure_and_a_group_has_one_mark(tmp_path: Path) -> None:
    complaints: list[str] = []
    # Given a bot whose run a newer message stops
    (tmp_path / "my_bot.py").write_text(STOPPABLE)
    settings = {"COLLECT": "messages", "INTERRUPT": "on", "RETRY_BACKOFF": "0.2"}
    with sandbox(tmp_path, "my_bot:handle", **settings) as running, browser() as window:
        page = opened(window, running.url, complaints)
        ann = ChatRegion(page, "Ann")
        ann.write("think")
        expect(ann.message("Thinking of 1 …")).to_be_visible()
        # When she writes again, then one run answers both
        ann.write("of dogs")
        expect(ann.message("think\nof dogs")).to_be_visible()
        # And both are one group, with one mark
        collected = ann.here.locator(".msg.out.collected")
        expect(collected).to_have_count(2)
        expect(collected.locator(".mark")).to_have_count(1)
        expect(collected.locator(".mark.done")).to_have_count(1)
        # And its details say that it was stopped, and nothing that it failed
        update = ann.look_at("think")
        expect(update).to_contain_text("done")
        expect(update.get_by_role("region", name="Timeline")).to_contain_text("stopped by a newer message")
        expect(update).to_contain_text("one run for 2 updates")
        expect(update.get_by_role("region", name="Traceback")).to_have_count(0)
        expect(ann.here.locator(".fault:visible")).to_have_count(0)
        # And of four messages one after the other, while they run, there is one mark
        for text in ("a", "b", "c", "think"):
            ann.write(text)
        expect(ann.message("Thinking of 4 …")).to_be_visible()
        expect(collected).to_have_count(6)
        expect(collected.locator(".mark")).to_have_count(2)
        expect(collected.locator(".mark.running")).to_have_count(1)
        ann.write("fail")
        # And the only problem is the failure, with its attempt
        expect(ann.message("a\nb\nc\nthink\nfail")).to_be_visible()
        page.get_by_role("tab", name="Problems").click()
        problems = page.get_by_role("tabpanel", name="Problems").get_by_role("article")
        expect(problems).to_have_count(1)
        expect(problems).to_contain_text("ValueError: no")
        expect(problems).to_contain_text("attempt 1: it is retried")
        assert complaints == []


def presses_buttons(page: Page, ann: ChatRegion) -> None:
    ann.write("/menu")
    asked = ann.message("What would you like? /no")
    expect(asked.locator("strong")).to_have_text("What")
    expect(asked.locator("em")).to_have_text("you")
    # A command in code is not a command
    expect(asked.locator("code")).to_have_text("/no")
    ann.press("Coffee")
    page.get_by_role("dialog").get_by_text("Coffee, of course.").wait_for()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_hidden()
    # And the message field has the focus
    expect(ann.field).to_be_focused()
    expect(ann.message("You get Coffee.")).to_contain_text("edited")
    ann.write("/menu")
    ann.press("Tea")
    expect(ann.here.get_by_role("status")).to_have_text("Tea, of course.")
    expect(ann.field).to_be_focused()
    ann.write("/keys")
    ann.press("Yes")
    expect(ann.message("You wrote: Yes")).to_be_visible()
    ann.write("/gone")
    expect(ann.message("Never said.")).to_contain_text("deleted")
    expect(ann.here.get_by_role("img", name="Reaction 👍")).to_be_visible()


def shows_a_broadcast(page: Page, ann: ChatRegion) -> None:
    page.get_by_role("tab", name="Lanes").click()
    ann.write("/endless")
    broadcasts = page.get_by_role("region", name="Broadcasts")
    expect(broadcasts.get_by_role("progressbar")).to_be_visible()
    expect(broadcasts).to_contain_text(re.compile(r"running: \d+ of 900, [1-9]\d*/s"))
    # And it can be paused and resumed
    broadcasts.get_by_role("button", name="Pause").click()
    expect(broadcasts).to_contain_text(re.compile(r"paused: \d+ of 900"))
    broadcasts.get_by_role("button", name="Resume").click()
    expect(broadcasts).to_contain_text(re.compile(r"running: \d+ of 900"))
    broadcasts.get_by_role("button", name="Pause").click()
    expect(broadcasts).to_contain_text(re.compile(r"paused: \d+ of 900"))
    # And recipients are counted though the page does not have their chats
    ann.write("/news")
    expect(broadcasts).to_contain_text("done: 40 of 40")
    expect(broadcasts).to_contain_text("40 sent · 40 of the messages to chats that are not on this page")


def sends_a_photo(ann: ChatRegion) -> None:
    ann.here.get_by_label("Photo", exact=True).set_input_files(PHOTO)
    expect(ann.here.get_by_text("photo.png, with what you write below it")).to_be_visible()
    ann.field.press("Enter")
    expect(ann.message("A fine picture.")).to_be_visible()
    photo = ann.here.get_by_role("img", name="Photo").last
    assert photo.evaluate("async (image) => { await image.decode(); return image.naturalWidth }") > 0


def edits_what_was_said(ann: ChatRegion) -> None:
    ann.write("two sugars")
    expect(ann.message("You wrote: two sugars")).to_be_visible()
    ann.field.press("ArrowUp")
    expect(ann.field).to_have_value("two sugars")
    ann.write("no sugar")
    expect(ann.message("Changed to: no sugar")).to_be_visible()
    expect(ann.message("no sugar")).to_contain_text("edited")


def fails_and_replays(page: Page, ben: ChatRegion) -> None:
    ben.write("/fail")
    expect(ben.message("/fail")).to_contain_text("HopelessError: nothing helps <script>")
    about = ben.look_at("/fail")
    # The update, its times, its calls and its traceback
    expect(about).to_contain_text('"text": "/fail"')
    expect(about).to_contain_text("waited in its lane")
    expect(about.locator(".calls").get_by_text("sendMessage")).to_have_count(1)
    timeline = about.get_by_role("region", name="Timeline")
    expect(timeline).to_contain_text("failed, and is buried: story_bot.HopelessError")
    # The line with the error is broken, all others are not
    box = about.get_by_role("region", name="Traceback")
    fits = "(line) => line.getBoundingClientRect().right <= line.parentNode.getBoundingClientRect().right"
    assert box.locator(".error").evaluate(fits)
    # And the address of the page leads there again
    linked = page.context.new_page()
    linked.goto(page.url)
    expect(linked.get_by_role("tabpanel", name="Update")).to_contain_text('"text": "/fail"')
    linked.close()
    expect(about).to_contain_text("in fail\n    raise HopelessError")
    page.get_by_role("tab", name="Problems").click()
    problems = page.get_by_role("tabpanel", name="Problems")
    expect(problems).to_contain_text("HopelessError: nothing helps <script>")
    # The problem names its chat; its traceback begins with the bot's code, and shows its end
    expect(problems).to_contain_text("A handler raised in Ben")
    traceback = problems.get_by_role("region", name="Traceback")
    assert "story_bot.py" in traceback.inner_text().splitlines()[1]
    assert traceback.evaluate("(box) => box.scrollTop + box.clientHeight >= box.scrollHeight - 1")
    assert traceback.evaluate("(box) => getComputedStyle(box).whiteSpace") == "pre"
    # Its chat continues, and it can be replayed: what it had sent is not sent again
    ben.write("next")
    expect(ben.message("You wrote: next")).to_be_visible()
    ben.look_at("/fail").get_by_role("button", name="Replay").click()
    expect(ben.message("/fail").get_by_role("button", name=re.compile("buried"))).to_be_visible()
    expect(ben.here.get_by_text("Just before.")).to_have_count(1)


def two_write_in_a_group(page: Page, group: ChatRegion) -> None:
    for name in ("Ann", "Ben"):
        group.here.get_by_role("radio", name=name).check()
        group.write(f"It is {name}")
        expect(group.message(f"It is {name}").get_by_text(name, exact=True)).to_be_visible()
        expect(group.message(f"You wrote: It is {name}")).to_be_visible()
    about = group.look_at("It is Ben")
    expect(about).to_contain_text('"type": "supergroup"')
    expect(about).to_contain_text('"first_name": "Ben"')


def kills_a_worker_under_a_flood(page: Page) -> None:
    page.get_by_role("tab", name="Lanes").click()
    panel = page.get_by_role("tabpanel", name="Lanes")
    pids = panel.get_by_text(re.compile(r"^pid \d+$")).all_inner_texts()
    # The flood does not end before the kill
    slow = panel.get_by_role("switch", name="Slow handlers")
    slow.click()
    expect(slow).to_be_checked()
    panel.get_by_role("button", name="Flood 500").click()
    expect(figure(page, "waiting")).not_to_have_text("0")
    kill = panel.get_by_role("button", name=re.compile("^kill -9")).first
    worker = (kill.get_attribute("aria-label") or "").removeprefix("kill -9 ").partition("@")[0]
    # It dies with a lane that is shown
    expect(panel.locator(".head").get_by_text(worker).first).to_be_visible()
    kill.click()
    expect(panel).to_contain_text("while 1 worker was killed")
    slow.click()
    expect(panel.get_by_text(re.compile("^† worker killed; others take over"))).to_be_visible()
    expect(panel.get_by_text(pids[0], exact=True)).to_have_count(0)
    for name in ("waiting", "handed_out", "running", "delayed"):
        expect(figure(page, name)).to_have_text("0")
    for name in ("lost", "out_of_order", "repeated"):
        expect(figure(page, name)).to_have_text("0")
    assert page.locator(".msg").count() < 400


#: Elements that extend beyond the window, except in boxes that scroll.
CUT_OFF = """() => [...document.querySelectorAll("main *, header *, .dock *")]
  .filter((node) => node.checkVisibility() && node.getBoundingClientRect().right > innerWidth + 1)
  .filter((node) => !node.closest(".rail, pre, .commands, .writers"))
  .map((node) => node.outerHTML.slice(0, 80))"""

CUT_NAMES = """(names) => names
  .filter((name) => name.scrollHeight > name.clientHeight || name.scrollWidth > name.clientWidth)
  .map((name) => name.textContent)"""


def figure(page: Page, name: str) -> Locator:
    return page.locator(f"[data-name={name}] b")


def makes_a_chat(page: Page) -> None:
    page.get_by_role("button", name="New chat").click()
    page.get_by_role("radio", name="Group").check()
    page.get_by_label("Title").fill("Weekend trip")
    page.get_by_label("Members").fill("Cleo, Ben")
    page.keyboard.press("Enter")
    trip = ChatRegion(page, "Weekend trip")
    trip.write("/menu")
    expect(trip.message("What would you like? /no")).to_be_visible()


def fits_a_phone(page: Page) -> None:
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Dark theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != ground
    # On a small laptop a chat stands beside the lanes
    page.set_viewport_size({"width": 900, "height": 800})
    page.get_by_role("tab", name="Lanes").click()
    expect(page.locator(".column")).to_have_count(1)
    expect(page.get_by_role("tabpanel", name="Lanes")).to_be_visible()
    # On a tablet no name in the rail is cut
    page.set_viewport_size({"width": 820, "height": 844})
    assert page.locator(".rail .name").evaluate_all(CUT_NAMES) == []
    page.set_viewport_size({"width": 390, "height": 844})
    for view in ("Lanes", "Update", "Problems", "Chats"):
        page.get_by_role("navigation", name="Views").get_by_role("button", name=view).click()
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert page.evaluate(CUT_OFF) == []
    # And a chat can be added, however many there are
    new_chat = page.get_by_role("button", name="New chat").bounding_box()
    assert new_chat
    assert new_chat["x"] + new_chat["width"] <= 390
    assert page.locator("#bot").evaluate("(name) => name.scrollWidth <= name.clientWidth")
    expect(page.locator(".column")).to_have_count(1)
    expect(ChatRegion(page, "Weekend trip").field).to_be_visible()
