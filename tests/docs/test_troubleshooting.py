"""docs/troubleshooting.md explains every message of chatlanes, and none that there is not."""

from __future__ import annotations

import pytest

from tests.docs.messages import LEAST_LETTERS, LoggedMessage, entries, frames, messages
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
HOW = "a message is a heading of the fourth level, one span of code: its text, or how it begins, with … for what varies"


def is_of(entry: str, message: LoggedMessage) -> bool:
    """An entry is the whole message, or its beginning."""
    return message.text.startswith(entry)


@pytest.mark.parametrize("message", messages(), ids=str)
def test_every_message_is_explained(message: LoggedMessage) -> None:
    assert any(is_of(entry, message) for entry in entries(PAGE)), (
        f"{message.place} has a message that {PAGE.name} does not explain. Add it, or change the heading of the one "
        f"that was reworded, to:\n\n#### `{message.text}`\n\n({HOW})"
    )


@pytest.mark.parametrize("entry", entries(PAGE))
def test_every_entry_is_a_message(entry: str) -> None:
    assert any(is_of(entry, message) for message in (*messages(), *frames())), (
        f"{PAGE.name} explains a message that chatlanes/ does not have any more:\n\n{entry}\n\n"
        f"If it was reworded, change the heading; else delete its section. ({HOW})"
    )


def test_the_entries_differ_and_say_something() -> None:
    all_of_them = entries(PAGE)
    assert len(set(all_of_them)) == len(all_of_them)
    assert not [entry for entry in all_of_them if len([sign for sign in entry if sign.isalnum()]) < LEAST_LETTERS]
