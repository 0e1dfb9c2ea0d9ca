"""The users' updates in a chaos run: private chats, groups that share users, and channels.

The same seed gives the same updates. Most of them are in two lanes (chat and user), which cross in the groups; channel
posts are in one.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from chatlanes_sandbox.simulator import Simulator

USERS, GROUPS, CHANNELS = 40, 20, 10
STEP_S = 0.05
#: Senders that may write again, and how many of their messages are commands.
RECENT, COMMANDS = 6, 0.1

Update = dict[str, Any]


def updates(seed: int, repeats: float = 0.0) -> Iterator[Update]:
    """Generates updates without update_id, endlessly. With the probability `repeats` a recent sender writes again
    in the same chat, now and then a command.
    """
    chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
    number, recent = 0, deque[Update](maxlen=RECENT)
    while True:
        number += 1
        if repeats and recent and chance.random() < repeats:
            again = chance.choice(recent)
            text = f"/hello {number}" if chance.random() < COMMANDS else f"hello #{number}"
            yield {"message": {**again, "message_id": number, "date": int(time.time()), "text": text}}
            continue
        user = 1001 + chance.randrange(USERS)
        match chance.choices(["private", "group", "channel"], weights=[5, 4, 1])[0]:
            case "private":
                recent.append(_message(number, {"id": user, "type": "private"}, user))
                yield {"message": recent[-1]}
            case "group":
                recent.append(_message(number, {"id": -2001 - chance.randrange(GROUPS), "type": "group"}, user))
                yield {"message": recent[-1]}
            case _:
                channel = {"id": -3001 - chance.randrange(CHANNELS), "type": "channel"}
                yield {"channel_post": _message(number, channel, None)}


def _message(number: int, chat: Update, user: int | None) -> Update:
    sender = {} if user is None else {"from": {"id": user, "is_bot": False, "first_name": f"User {user}"}}
    return {"message_id": number, **sender, "chat": chat, "date": int(time.time()), "text": f"hello #{number}"}


class Feed(threading.Thread):
    """Sends updates at a constant rate, from `start` until `end`."""

    def __init__(self, telegram: Simulator, seed: int, rate: float, repeats: float = 0.0) -> None:
        super().__init__(name="feed", daemon=True)
        self._telegram = telegram
        self._updates = updates(seed, repeats)
        self._rate = rate
        self._ended = threading.Event()
        self.sent = 0

    def run(self) -> None:
        began_s = time.monotonic()
        while not self._ended.wait(STEP_S):
            due = int((time.monotonic() - began_s) * self._rate) - self.sent
            if due > 0:
                self._telegram.push(*[next(self._updates) for _ in range(due)])
                self.sent += due

    def end(self) -> None:
        self._ended.set()
        self.join()
