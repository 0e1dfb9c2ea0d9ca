"""The recipients: read from lines, and packed."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlanes.broadcasts import RecipientsError, read_recipients
from chatlanes.broadcasts.recipients import CHUNK, pack, unpack


def test_blank_lines_comments_and_repeated_chats_are_ignored() -> None:
    file = io.StringIO("# all\n\n 7 \n-1001234567890 # news\n7\n")
    assert read_recipients(file) == [7, -1001234567890]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("7\n@ann\n8\n1.5", "line 2 is '@ann'; line 4 is '1.5': write one chat id"),
        ("0", "line 1 is '0'"),
        ("x\n" * 9, "line 5 is 'x', and there are more: write"),
        ("# nobody", "there are no recipients"),
        (f"7\n{2**52 + 1}\n-{2**60}", f"line 2 is '{2**52 + 1}'; line 3 is '-{2**60}'"),
        ("7 # " + "x" * 1_000 + "8", "line 1 has more than 1,000 characters"),
    ],
)
def test_malformed_lines_are_named(text: str, sentence: str) -> None:
    with pytest.raises(RecipientsError) as error:
        read_recipients(io.StringIO(text))
    assert sentence in str(error.value)


@pytest.mark.parametrize("endless", ["\0", "@ann\n", "9", "# "])
def test_an_endless_file_is_read_no_further_than_needed(endless: str) -> None:
    class Endless(io.StringIO):
        lines = 0

        def readline(self, size: int = -1, /) -> str:
            """As of a device that never ends; a file that is read whole fills the memory."""
            self.lines += 1
            assert size > 0
            assert self.lines < 10
            return endless if endless.endswith("\n") else (endless * size)[:size]

    with pytest.raises(RecipientsError, match="line 1 "):
        read_recipients(Endless())


@given(st.lists(st.integers(-(10**15), 10**15), min_size=1))
def test_packed_recipients_are_the_same(chats: list[int]) -> None:
    assert [chat for chunk in pack(chats) for chat in unpack(chunk)] == chats


def test_each_chunk_has_a_fixed_number_of_recipients() -> None:
    assert [len(unpack(chunk)) for chunk in pack(range(2 * CHUNK + 1))] == [CHUNK, CHUNK, 1]
