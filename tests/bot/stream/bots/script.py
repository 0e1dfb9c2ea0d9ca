"""What every bot streams: the tokens of a model that is asked `<count> tokens, one each <n> ms`.

`hold:<n>` waits after n tokens, in the first attempt, until the gate `go` is open. The time of each write that took
more than 10 ms is added to the file `writes`.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from tests.support.bots import GATES

TOKEN = os.environ.get("BOT_TOKEN", "1:none")


def orders(text: str) -> tuple[int, float, int]:
    """The number of tokens, the seconds between two, and after how many to hold."""
    found = dict(re.findall(r"(\w+):(\w+)", text))
    return int(found.get("count", 20)), int(found.get("ms", 20)) / 1000, int(found.get("hold", 0))


def answer(count: int, attempt: int = 1) -> list[str]:
    """The model answers differently in every attempt."""
    return [f"In attempt {attempt} the model says ", *(f"word{number} " for number in range(count)), "<end>"]


def is_held() -> bool:
    return not Path(os.environ[GATES], "go").exists()


def tokens(text: str, attempt: int) -> Iterator[str]:
    count, each_s, hold = orders(text)
    for number, token in enumerate(answer(count, attempt)):
        yield token
        time.sleep(each_s)
        while attempt == 1 and number + 1 == hold and is_held():
            time.sleep(0.01)


async def tokens_async(text: str, attempt: int) -> AsyncIterator[str]:
    count, each_s, hold = orders(text)
    for number, token in enumerate(answer(count, attempt)):
        yield token
        await asyncio.sleep(each_s)
        while attempt == 1 and number + 1 == hold and is_held():
            await asyncio.sleep(0.01)


def write(out: Any, token: str) -> None:
    began_s = time.monotonic()
    out.write(token)
    took_s = time.monotonic() - began_s
    if took_s > 0.01:
        with Path(os.environ[GATES], "writes").open("a") as file:
            file.write(f"{took_s}\n")
