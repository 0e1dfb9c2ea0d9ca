"""Drafts with their Stop button, ephemeral and rich messages, in a real browser with real workers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.sandbox.page.seeing import ChatRegion, opened, sandbox
from tests.support.browser import browser

HERE = Path(__file__).parent
pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


def test_drafts_ephemeral_and_rich_messages(tmp_path: Path) -> None:
    shutil.copy(HERE / "agent_bot.py", tmp_path / "my_bot.py")
    complaints: list[str] = []
    wide = {"width": 1440, "height": 900}
    with sandbox(tmp_path, "my_bot:handle") as running, browser(viewport=wide) as window:
        page = opened(window, running.url, complaints)
        stops_a_draft(ChatRegion(page, "Ann"))
        shows_a_rich_message(ChatRegion(page, "Ann"))
        shows_a_secret_to_its_receiver(ChatRegion(page, "Ann and Ben"))
        # And a reload shows the same
        page.reload()
        group = ChatRegion(page, "Ann and Ben")
        group.here.get_by_role("radio", name="Ann").check()
        expect(group.message("Yes it is.")).to_be_visible()
        assert complaints == []


def stops_a_draft(ann: ChatRegion) -> None:
    # When the bot drafts, then Ann sees the draft and a Stop button; a reload has them too
    ann.write("hats")
    draft = ann.here.get_by_role("group", name="Draft")
    expect(draft).to_contain_text("Thinking about hats")
    ann.page.reload()
    expect(draft).to_contain_text("Thinking about hats")
    # When she presses it, then the draft vanishes, and the bot gets the update
    draft.get_by_role("button", name="Stop").click()
    expect(ann.message("Stopped draft 5.")).to_be_visible()
    expect(draft).to_have_count(0)


def shows_a_rich_message(ann: ChatRegion) -> None:
    ann.write("/rich")
    shown = ann.here.get_by_role("article").filter(has_text="Shopping").last
    expect(shown.locator("strong").first).to_have_text("Shopping")
    expect(shown).to_contain_text("• bread, fresh")


def shows_a_secret_to_its_receiver(group: ChatRegion) -> None:
    # Given a bot whose command /balance is ephemeral
    group.write("/setup")
    expect(group.message("Ready.")).to_be_visible()
    # When Ann sends it, then she sees it and the answer, which say so, and Ben sees neither
    group.write("/balance")
    answer = group.message("You have 3.")
    expect(answer).to_contain_text("Only Ann sees this")
    group.here.get_by_role("radio", name="Ben").check()
    expect(answer).to_be_hidden()
    expect(group.message("/balance")).to_be_hidden()
    expect(group.message("Ready.")).to_be_visible()
    # And she may press its button
    group.here.get_by_role("radio", name="Ann").check()
    expect(answer).to_be_visible()
    group.press("Is it so?")
    expect(group.message("Yes it is.")).to_contain_text("Only Ann sees this")
