"""The recipients: read from lines, and packed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlanes.broadcasts import RecipientsError, read_recipients
from chatlanes.broadcasts.recipients import CHUNK, pack, unpack


def test_blank_lines_comments_and_repeated_chats_are_ignored() -> None:
    assert read_recipients(["# all\n", "\n", " 7 \n", "-1001234567890 # news\n", "7\n"]) == [7, -1001234567890]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["7", "@ann", "8", "1.5"], "line 2 is '@ann'; line 4 is '1.5': write one chat id"),
        (["0"], "line 1 is '0'"),
        (["x"] * 9, "line 5 is 'x' and 4 more: write"),
        (["# nobody"], "there are no recipients"),
    ],
)
def test_malformed_lines_are_named(lines: list[str], sentence: str) -> None:
    with pytest.raises(RecipientsError) as error:
        read_recipients(lines)
    assert sentence in str(error.value)


@given(st.lists(st.integers(-(10**15), 10**15), min_size=1))
def test_packed_recipients_are_the_same(chats: list[int]) -> None:
    assert [chat for chunk in pack(chats) for chat in unpack(chunk)] == chats


def test_each_chunk_has_a_fixed_number_of_recipients() -> None:
    assert [len(unpack(chunk)) for chunk in pack(range(2 * CHUNK + 1))] == [CHUNK, CHUNK, 1]
