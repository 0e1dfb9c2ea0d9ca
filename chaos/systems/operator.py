"""The person who runs the bot in a chaos run: appends updates again that were appended before, and one that is
malformed; pauses a chat; replays the dead letter, and drops it. A command that fails, because Redis is away, is tried
again.
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

#: Of the updates that are appended again.
AGAIN = range(1, 6)
#: It has no update_id, so it becomes a dead letter. Replayed, it fails in each run, and is one again.
MALFORMED = {"message": {"text": "malformed"}}
#: The chat of a user (feed.py) that is paused, between the other steps.
PAUSED = "1001"
WITHIN_S, AGAIN_AFTER_S = 60.0, 0.5


class Operator(threading.Thread):
    """Begins after `after_s`. `end` waits until the last step is done, or has failed for too long."""

    def __init__(self, environment: Mapping[str, str], folder: Path, redis_port: int, after_s: float) -> None:
        super().__init__(name="operator", daemon=True)
        self._environment, self._folder, self._port = environment, folder, redis_port
        self._after_s, self._hurry = after_s, threading.Event()

    def run(self) -> None:
        self._hurry.wait(self._after_s)
        self._until(lambda client: client.getbit(f"{keys.SEEN}1:0", AGAIN[-1]))
        updates = self._folder / "again.jsonl"
        again = [{"update_id": number, "message": {"text": "again"}} for number in AGAIN]
        updates.write_text("".join(json.dumps(each) + "\n" for each in [*again, MALFORMED]))
        self._do("poller", "replay", str(updates))
        self._do("lanes", "pause", "chat", PAUSED)
        letter = self._until(_malformed)
        self._do("lanes", "dead", "replay", letter)
        self._do("lanes", "resume", "chat", PAUSED)
        self._until(_malformed)
        self._do("lanes", "dead", "drop", "--yes", letter)

    def end(self) -> None:
        self._hurry.set()
        self.join(WITHIN_S)

    def _do(self, *command: str) -> None:
        while True:
            with (self._folder / "commands.log").open("ab") as log:
                arguments = [sys.executable, "-m", "chatlanes", *command]
                try:
                    ran = subprocess.run(arguments, env=self._environment, stdout=log, stderr=log, timeout=WITHIN_S)
                except subprocess.TimeoutExpired:
                    continue
            if ran.returncode == 0:
                return
            threading.Event().wait(AGAIN_AFTER_S)

    def _until(self, found: Callable[[Redis], Any]) -> Any:
        """Asks Redis again and again, also while it is away. Returns the first answer that is not empty."""
        while True:
            with suppress(RedisError), Redis(port=self._port, socket_timeout=1.0) as client:
                if answer := found(client):
                    return answer
            threading.Event().wait(AGAIN_AFTER_S)


def _malformed(client: Redis) -> str:
    """The dead letter."""
    letters: list[Any] = client.zrange(keys.DEAD, 0, -1)
    return next((each.decode() for each in letters if b":malformed:" in each), "")
