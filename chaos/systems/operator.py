"""The person who runs the bot in a chaos run: appends updates again that were appended before; pauses a chat; replays a
dead letter, and drops it. The letter is an update of Telegram that is malformed. A command that fails, because Redis is
away, is tried again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from celery_lanes.protocol import keys
from chatlanes_sandbox.simulator import Simulator

#: How many of the first updates are appended again.
AGAIN = 5
#: Its id is none of Telegram's, so it becomes a dead letter. Replayed, it fails in each run (bot.py), and is one again.
MALFORMED = {"update_id": -1, "message": {"text": "malformed"}}
#: The chat of a user (feed.py) that is paused, between the other steps.
PAUSED = "1001"
WITHIN_S, AGAIN_AFTER_S = 60.0, 0.5


class Operator(threading.Thread):
    """Begins after `after_s`, while Telegram has updates: a malformed one needs a later one, or its poll fails.

    `end` waits until the last step is done, or has failed for too long; then `unfinished` names it. `malformed`: the
    numbers that Telegram has counted for the malformed update.
    """

    def __init__(
        self, environment: Mapping[str, str], folder: Path, redis_port: int, telegram: Simulator, after_s: float
    ) -> None:
        super().__init__(name="operator", daemon=True)
        self._environment, self._folder, self._port, self._telegram = environment, folder, redis_port, telegram
        self._after_s, self._hurry, self._gives_up = after_s, threading.Event(), threading.Event()
        self.malformed: list[int] = []
        self.unfinished = "appending updates again"

    def run(self) -> None:
        self._hurry.wait(self._after_s)
        self.malformed = [number for number in self._telegram.push_raw(MALFORMED) if number is not None]
        with suppress(_GaveUpError):
            self._append_again()
            self._pause_and_replay()
            self.unfinished = ""

    def end(self) -> None:
        self._hurry.set()
        self.join(WITHIN_S)
        self._gives_up.set()
        self.join()

    def _append_again(self) -> None:
        first = [number for number in range(1, AGAIN + 2) if number not in self.malformed][:AGAIN]
        self._until(lambda client: all(client.getbit(f"{keys.SEEN}1:0", number) for number in first))
        updates = self._folder / "again.jsonl"
        again = [{"update_id": number, "message": {"text": "again"}} for number in first]
        updates.write_text("".join(json.dumps(each) + "\n" for each in again))
        self._do("poller", "replay", str(updates))

    def _pause_and_replay(self) -> None:
        self.unfinished = "the replay of the dead letter"
        self._do("lanes", "pause", "chat", PAUSED)
        letter = self._until(_malformed)
        self._do("lanes", "dead", "replay", letter)
        self._do("lanes", "resume", "chat", PAUSED)
        self.unfinished = "the drop of the dead letter"
        self._until(_malformed)
        self._do("lanes", "dead", "drop", "--yes", letter, done=lambda client: not _malformed(client))

    def _do(self, *command: str, done: Callable[[Redis], bool] = lambda _: False) -> None:
        """Until it succeeds, or is `done`: Redis may have done it although the answer was lost."""
        arguments = [sys.executable, "-m", "chatlanes", *command]

        def has_succeeded(client: Redis) -> bool:
            with (self._folder / "commands.log").open("ab") as log, suppress(subprocess.TimeoutExpired):
                ran = subprocess.run(arguments, env=self._environment, stdout=log, stderr=log, timeout=WITHIN_S)
                return ran.returncode == 0 or done(client)
            return False

        self._until(has_succeeded)

    def _until(self, found: Callable[[Redis], Any]) -> Any:
        """Asks again and again, also while Redis is away. Returns the first answer that is not empty."""
        while not self._gives_up.is_set():
            with suppress(RedisError), Redis(port=self._port, socket_timeout=1.0) as client:
                if answer := found(client):
                    return answer
            self._gives_up.wait(AGAIN_AFTER_S)
        raise _GaveUpError


class _GaveUpError(Exception):
    pass


def _malformed(client: Redis) -> str:
    """The dead letter."""
    letters: list[Any] = client.zrange(keys.DEAD, 0, -1)
    return next((each.decode() for each in letters if b":malformed:" in each), "")
