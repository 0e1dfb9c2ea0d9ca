"""Runs several processes as one: shows their output side by side, starts again who was killed, and stops all when one
ends with a word of its own.

Promises that SIGTERM reaches each part's main process only, which gets time to finish its work; what is still there
then is killed. Workers that cannot start are held, with a page that says why, until the bot has been mended.
"""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from chatlanes.sandbox.ends import Hold, StopAll
from chatlanes.sandbox.parts import Part
from chatlanes.sandbox.places import NEVER, Place
from chatlanes.sandbox.rehearsal import Rehearsal
from chatlanes.sandbox.running import Running
from chatlanes.sandbox.voice import Voice

#: A worker finishes its running handlers first; handlers that take longer are run again after the next start.
STOP_WITHIN_S = 30.0
#: How often it looks whether something has ended, or is due.
LOOK_EVERY_S = 0.1


class Supervisor:
    """`foundations` are processes that others start and stop: the parts stop when one of them is gone. With a
    `rehearsal`, workers start when it has found that the bot can be imported.
    """

    def __init__(self, foundations: Mapping[str, Callable[[], bool]], rehearsal: Rehearsal | None = None) -> None:
        self._foundations = foundations
        self._rehearsal = rehearsal
        self._voice = Voice()
        self._places: dict[str, Place] = {}
        self._selector = selectors.DefaultSelector()
        self._signal: int | None = None
        self._is_stopping = False
        self._kill_at_s = NEVER
        self._ended_first: str | None = None

    def add(self, part: Part, environment: Mapping[str, str]) -> None:
        self._voice.know(part.name)
        waits = part.is_worker and self._rehearsal is not None
        self._places[part.name] = Place(part, environment, start_at_s=NEVER if waits else 0.0)

    def run(self) -> str | None:
        """Until SIGINT, SIGTERM, or the end of one part. Returns the name of the part that ended by itself."""
        with self._signals():
            while not self._is_stopping or self._any_runs():
                self._start_what_is_due()
                self._listen()
                self._look_after()
        if self._rehearsal:
            self._rehearsal.close()
        self._selector.close()
        return self._ended_first

    # ── one round ──

    def _start_what_is_due(self) -> None:
        for name, place in self._places.items():
            if place.is_due and not self._is_stopping:
                running = place.start()
                self._selector.register(running, selectors.EVENT_READ, name)
                self._voice.say_itself(f"{name} started (pid={running.pid})")

    def _listen(self) -> None:
        for key, _ in self._selector.select(LOOK_EVERY_S):
            running: Any = key.fileobj
            lines = running.lines()
            if lines is None:
                self._selector.unregister(running)
            else:
                self._voice.say(key.data, *lines)

    def _look_after(self) -> None:
        for name, place in self._places.items():
            code = place.running.ended() if place.running else None
            if place.running and code is not None:
                self._hear_out(name, place.running)
                self._voice.say_itself(f"{name} stopped (rc={code})")
                self._has_ended(name, place, place.running, code)
        if self._signal is not None and not self._is_stopping:
            self._voice.say_itself(f"{signal.Signals(self._signal).name} received")
            self._stop(None)
        fallen = next((name for name, is_running in self._foundations.items() if not is_running()), None)
        if fallen:
            self._stop(fallen)
        if time.monotonic() > self._kill_at_s:
            self._kill()
        if self._rehearsal and not self._is_stopping:
            self._rehearse(self._rehearsal)

    def _hear_out(self, name: str, running: Running) -> None:
        """Its last lines."""
        if running in [key.fileobj for key in self._selector.get_map().values()]:
            self._selector.unregister(running)
            self._voice.say(name, *(running.lines() or ()))

    def _has_ended(self, name: str, place: Place, running: Running, code: int) -> None:
        decision = place.has_ended(code, may_be_mended=place.part.is_worker and self._rehearsal is not None)
        if self._is_stopping:
            return
        if isinstance(decision, StopAll):
            self._stop(name)
        elif isinstance(decision, Hold) and self._rehearsal:
            self._rehearsal.worker_failed(name, list(running.said))

    def _any_runs(self) -> bool:
        return any(place.running for place in self._places.values())

    # ── the page, and the bot ──

    def _rehearse(self, rehearsal: Rehearsal) -> None:
        workers = {name: place for name, place in self._places.items() if place.part.is_worker}
        wanted = rehearsal.look(workers, self._voice)
        for name in wanted.kill & workers.keys():
            running = workers[name].running
            if running:
                self._voice.say_itself(f"killing {name} (pid {running.pid}) as the page wishes")
                workers[name].killed = True
                running.kill()
        if wanted.start:
            for name, place in workers.items():
                place.short_lives = 0
                if place.running:
                    self._tell(name, place.running)
                else:
                    place.start_at_s = 0.0

    # ── the end ──

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def received(number: int, _: object) -> None:
            self._signal = number  # no more: it may come in the middle of a start

        before = {number: signal.signal(number, received) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, because_of: str | None) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        self._ended_first = because_of
        self._kill_at_s = time.monotonic() + STOP_WITHIN_S
        for name, place in self._places.items():
            if place.running:
                self._tell(name, place.running)

    def _tell(self, name: str, running: Running) -> None:
        self._voice.say_itself(f"sending SIGTERM to {name} (pid {running.pid})")
        running.terminate()

    def _kill(self) -> None:
        self._kill_at_s = NEVER
        for name, place in self._places.items():
            if place.running:
                self._voice.say_itself(f"sending SIGKILL to {name} (pid {place.running.pid})")
                place.running.kill()
