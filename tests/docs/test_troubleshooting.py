"""docs/troubleshooting.md explains every message of chatlanes, and none that there is not."""

from __future__ import annotations

from tests.docs.messages import LEAST_LETTERS, LoggedMessage, entries, frames, messages
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
HOW = "a message is a heading of the fourth level, one span of code: its text, or how it begins, with … for what varies"


def is_of(entry: str, message: LoggedMessage) -> bool:
    """An entry is the whole message, or its beginning."""
    return message.text.startswith(entry)


def test_every_message_is_explained() -> None:
    known = entries(PAGE)
    unexplained = [message for message in messages() if not any(is_of(entry, message) for entry in known)]
    assert not unexplained, (
        f"{PAGE.name} does not explain these messages. Add them, or change the headings of those that were reworded, "
        f"such as:\n\n#### `{unexplained[0].text}`\n\n({HOW})"
    )


def test_every_entry_is_a_message() -> None:
    known = (*messages(), *frames())
    old = [entry for entry in entries(PAGE) if not any(is_of(entry, message) for message in known)]
    assert not old, f"{PAGE.name} explains messages that nothing has. Change their headings, or delete them. ({HOW})"


def test_the_entries_differ_and_say_something() -> None:
    all_of_them = entries(PAGE)
    assert len(set(all_of_them)) == len(all_of_them)
    assert not [entry for entry in all_of_them if len([sign for sign in entry if sign.isalnum()]) < LEAST_LETTERS]
