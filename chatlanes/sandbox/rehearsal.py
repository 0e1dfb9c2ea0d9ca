"""Tries whether the bot can be imported before the workers do, and again when it was edited or the page asks for it.

Promises that workers which run go on with the bot as it was while the edited one cannot be imported, and that the page
and the terminal say why.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chatlanes.sandbox.edits import Edits
from chatlanes.sandbox.page_line import PageLine
from chatlanes.sandbox.parts import PYTHON
from chatlanes.sandbox.places import Place
from chatlanes.sandbox.running import Running
from chatlanes.sandbox.voice import Voice

NAME = "bot"
#: Between two looks at the files.
LOOK_EVERY_S = 1.0
#: The import says itself that it takes long (chatlanes/settings/imports.py); a little later that is a problem.
LONG_IMPORT_S = 25.0


@dataclass(frozen=True)
class Wanted:
    """What the supervisor is to do: kill these workers; start all of them anew."""

    kill: frozenset[str] = frozenset()
    start: bool = False


@dataclass
class Rehearsal:
    """`follows_edits`: also of a bot that runs."""

    line: PageLine
    bot: str
    environment: Mapping[str, str]
    follows_edits: bool = False

    _trying: Running | None = field(default=None, init=False)
    _is_wanted: bool = field(default=True, init=False)
    _is_broken: bool = field(default=False, init=False)
    _look_at_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._edits = Edits(Path.cwd())

    def look(self, workers: Mapping[str, Place], voice: Voice) -> Wanted:
        """Called again and again."""
        self.line.tell_workers([_shown(name, place) for name, place in workers.items()])
        orders = self.line.orders() or []
        self._is_wanted = self._is_wanted or self._is_edited() or any(order.get("restart") for order in orders)
        kill = frozenset(str(order["kill"]) for order in orders if "kill" in order)
        return Wanted(kill, start=self._try(voice))

    def worker_failed(self, name: str, said: list[str]) -> None:
        """It ended with a word of its own."""
        self._is_broken = True
        title = next((line for line in reversed(said) if line.strip()), "it said nothing")
        self.line.tell_problem("worker", f"{name} cannot start: {title}", "\n".join(said))

    def close(self) -> None:
        if self._trying:
            self._trying.kill()
            self._trying.wait()
            self._trying.close()
            self._trying = None

    def _is_edited(self) -> bool:
        if not (self._is_broken or self.follows_edits) or time.monotonic() < self._look_at_s:
            return False
        self._look_at_s = time.monotonic() + LOOK_EVERY_S
        return self._edits.are_new()

    def _try(self, voice: Voice) -> bool:
        """Whether the bot has just been found good."""
        if self._is_wanted:
            self.close()  # it may never end
            self._is_wanted = self._is_broken = False
            self._edits.are_new()  # from here on: it may be edited while it is imported
            self._trying = Running((*PYTHON, "chatlanes.sandbox.check_bot", self.bot), self.environment)
        if self._trying is None:
            return False
        code = self._trying.ended()
        self._trying.lines()
        if code is None:
            self._wait(voice, self._trying)
            return False
        said = list(self._trying.said)
        self.close()
        self._is_broken = code != 0
        if self._is_broken:
            self._tell(voice, said or [f"BOT={self.bot} cannot be imported (code {code})."])
        else:
            self.line.tell_solved()
        return not self._is_broken

    def _wait(self, voice: Voice, trying: Running) -> None:
        """Not for ever without a word."""
        if not self._is_broken and time.monotonic() - trying.started_s > LONG_IMPORT_S:
            self._is_broken = True
            self._tell(voice, list(trying.said) or [f"BOT={self.bot} is still being imported."])

    def _tell(self, voice: Voice, said: list[str]) -> None:
        voice.say(NAME, *said)
        voice.say_itself("the workers start when the bot has been mended (its files are watched)")
        self.line.tell_problem("import", said[-1], "\n".join(said[:-1]))


def _shown(name: str, place: Place) -> dict[str, object]:
    return {
        "name": name,
        "pid": place.running.pid if place.running else None,
        "alive": place.running is not None,
        "killed": place.killed,
    }
