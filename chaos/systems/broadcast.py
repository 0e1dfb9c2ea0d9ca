"""The broadcasts of a chaos run, by their commands. The main one calls a method; it is paused and resumed. The commands
that start the others are killed; they run a handler.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from redis import Redis

from chaos.systems.recording import message_id, recorded
from chatlanes import Context
from chatlanes.broadcasts import Broadcasts
from chatlanes.updates import keys_of

BOT_ID = 1
KIND = "broadcast"
#: The text of the messages of the main one.
TEXT = "news"
#: The recipients of the others: some are chats of users, and chats of the main one.
FIRST, RECIPIENTS = 981, 60
#: A command that takes longer has failed, because Redis is away. It is tried again if it must succeed.
WITHIN_S, TRIES, AGAIN_AFTER_S = 60.0, 20, 1.0


def send(ctx: Context) -> None:
    """The handler of the others. Records its run, and sends one message."""
    keys, id_ = keys_of(ctx.update, "chat"), ctx.update[KIND]["id"]
    with recorded(ctx, 0, keys, kind=KIND, message=message_id()) as run:
        run.call(0, ctx.chat_id, f"{KIND} {id_} {ctx.chat_id}")


@dataclass
class BroadcastCommands:
    """`promised`: the broadcasts whose commands have printed their id. `takes_s`: the time that a start takes here."""

    environment: Mapping[str, str]
    folder: Path
    promised: list[str] = field(default_factory=list)
    main: str = ""
    takes_s: float = 0.0

    def start(self, recipients: int) -> None:
        """Starts the main one."""
        text = self.folder / "text"
        text.write_text(TEXT)
        to = self._recipients("main", range(1, recipients + 1))
        command = self._command("start", "--to", str(to), "--method", "sendMessage", "--text-file", str(text))
        began_s = time.monotonic()
        ran = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=WITHIN_S, check=True
        )
        self.takes_s = time.monotonic() - began_s
        self.main = ran.stdout.strip()
        self.promised.append(self.main)

    def start_and_kill(self, after_s: float) -> None:
        """Starts another one; its command is killed unless it ends before."""
        to = self._recipients("others", range(FIRST, FIRST + RECIPIENTS))
        command = self._command("start", "--to", str(to), "--handler", f"{__name__}:send")
        with self._log() as log:
            process = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            printed, _ = process.communicate(timeout=after_s)
        except subprocess.TimeoutExpired:
            process.kill()
            printed, _ = process.communicate()
        self.promised += printed.split("\n")[:-1]

    def pause(self, for_s: float) -> None:
        """Pauses the main one. Returns when it is resumed."""
        self._run("pause")
        time.sleep(for_s)
        for _ in range(TRIES):
            if self._run("resume"):
                return
            time.sleep(AGAIN_AFTER_S)

    def _run(self, verb: str) -> bool:
        """False if it has failed."""
        with self._log() as log:
            process = subprocess.Popen(self._command(verb, self.main), env=self.environment, stdout=log, stderr=log)
            try:
                return process.wait(WITHIN_S) == 0
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                return False

    def _log(self) -> IO[bytes]:
        return (self.folder / "commands.log").open("ab")

    def _recipients(self, name: str, chats: range) -> Path:
        file = self.folder / f"{name}.txt"
        file.write_text("\n".join(map(str, chats)))
        return file

    def _command(self, verb: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "chatlanes", "lanes", "broadcast", verb, *arguments]


def unreached(client: Redis) -> int:
    """How many recipients have no result yet."""
    return sum(each.total - each.done for each in Broadcasts(client, BOT_ID).all())


def results(client: Redis) -> dict[str, dict[str, Any]]:
    """By its id: how many recipients each broadcast has, the number of each result, and why chats were missed."""
    broadcasts = Broadcasts(client, BOT_ID)
    return {
        each.id: {
            "total": each.total,
            "counts": each.counts,
            "missed": {chat: reason for chat, reason, _ in broadcasts.missed(each.id)},
        }
        for each in broadcasts.all()
    }
