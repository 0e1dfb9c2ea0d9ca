"""The recipients of a broadcast: read from a file, and packed for Redis.

Guarantees that each chat is a recipient at most once, in the order of the file, and that a malformed line is named by
its number before anything starts. Holds neither a long line nor many malformed ones in memory.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from typing import TextIO

#: The recipients in one key of Redis. About 46 KB when packed: a worker unpacks it in 1 ms.
CHUNK = 10_000
#: The malformed lines that are named. Reading ends at the next one.
MOST_NAMED = 5
#: Characters of a line with its comment. A binary file may be one line.
LONGEST_LINE = 1_000
#: Telegram's ids have at most 52 bits.
LARGEST_ID = 2**52

_LINE = re.compile(r"-?[0-9]{1,18}")


class RecipientsError(Exception):
    """The recipients cannot be used as given. The text says what to do."""


def is_chat_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < abs(value) <= LARGEST_ID


def read_recipients(file: TextIO) -> list[int]:
    """The chat ids, one on each line, without repeated ones. Blank lines, and text after `#`, are ignored.

    Raises RecipientsError if lines are malformed, with their numbers, or if the file has no recipients.
    """
    chats: dict[int, None] = {}
    wrong: list[str] = []
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), ""), 1):
        text = line.partition("#")[0].strip()
        if len(line) == LONGEST_LINE and line[-1] != "\n":
            wrong.append(f"line {number} has more than {LONGEST_LINE:,} characters")
            break  # what follows is not the beginning of a line
        if _LINE.fullmatch(text) and is_chat_id(int(text)):
            chats[int(text)] = None
        elif text:
            wrong.append(f"line {number} is {text[:40]!r}")
        if len(wrong) > MOST_NAMED:
            break
    if wrong:
        more = ", and there are more" if len(wrong) > MOST_NAMED else ""
        raise RecipientsError(f"{'; '.join(wrong[:MOST_NAMED])}{more}: write one chat id, such as 123456, on each line")
    if not chats:
        raise RecipientsError("there are no recipients: write one chat id on each line")
    return list(chats)


def pack(chats: Sequence[int]) -> Iterator[bytes]:
    """The recipients in chunks of CHUNK, each compressed: 5 to 6 bytes for each recipient."""
    for start in range(0, len(chats), CHUNK):
        yield zlib.compress("\n".join(map(str, chats[start : start + CHUNK])).encode())


def unpack(chunk: bytes) -> list[int]:
    return [int(chat) for chat in zlib.decompress(chunk).split(b"\n")]
