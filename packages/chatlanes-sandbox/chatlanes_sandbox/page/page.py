"""The page as a whole: its bot, the workers' events, and the state of the lanes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from redis.exceptions import RedisError

from celery_lanes.protocol import Store
from chatlanes.broadcasts import Feeder, UnknownBroadcastError
from chatlanes.settings import Settings
from chatlanes.updates.connection import connect_to
from chatlanes_sandbox.page.bot import PageBot
from chatlanes_sandbox.page.calls import drafts_shown
from chatlanes_sandbox.page.lanes import KnownWorkers, LaneSnapshot, LaneWatch, lanes_shown
from chatlanes_sandbox.page.progress import start_receiving, timeline
from chatlanes_sandbox.page.user_actions import ActionError
from chatlanes_sandbox.page.views import chat_shown, message_shown

#: Of a call with "slow handlers": longer than it takes to press a button.
SLOW_S = 3.0


class Page:
    """One per process."""

    def __init__(self, bot: PageBot, settings: Settings) -> None:
        self.bot = bot
        self._settings = settings
        self._snapshot = LaneSnapshot()
        self._lanes: dict[str, Any] = {}
        self._listening: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Called on the server's event loop."""
        self._listening = asyncio.get_running_loop().create_task(self.bot.supervisor.listen())
        start_receiving(self.bot.tracker.receive)
        LaneWatch(self._settings, self._asks, self._saw).start()

    def _asks(self) -> frozenset[str] | None:
        asked = self.bot.tracker.asks()
        return asked if asked or len(self.bot.events) else None

    def _saw(self, snapshot: LaneSnapshot) -> None:
        self._snapshot = snapshot
        self.bot.tracker.see(snapshot, self.bot.updates.first_id)
        self._show_lanes()

    def _show_lanes(self) -> None:
        lanes = self.lanes()
        if lanes != self._lanes:
            self._lanes = lanes
            self.bot.events.publish("lanes", lanes)

    def lanes(self) -> dict[str, Any]:
        titles = {chat.id: chat.title for chat in self.bot.history.chats.values()}
        audit, supervisor = self.bot.tracker.audit, self.bot.supervisor
        shown = lanes_shown(self._snapshot, self.bot.me()["id"], titles, self._workers())
        for broadcast in shown["broadcasts"]:
            broadcast["elsewhere"] = self.bot.elsewhere[broadcast["id"]]
        return {
            **shown,
            "slow": self.bot.slow_s > 0,
            "stream": self.bot.stream_shown(),
            "killed": supervisor.killed,
            "lost": audit.lost,
            "out_of_order": audit.out_of_order,
            "repeated": audit.repeated,
            "uncertain": audit.uncertain,
        }

    def _workers(self) -> KnownWorkers:
        running = self.bot.tracker.runs_since_s(self._snapshot)
        return KnownWorkers(self.bot.supervisor.workers, self.bot.supervisor.names, running)

    def snapshot(self) -> dict[str, Any]:
        me, history = self.bot.me(), self.bot.history
        about = {"id": me["id"], "username": me["username"], "first_name": me["first_name"], "path": self._settings.bot}
        return {
            "bot": about,
            "chats": [chat_shown(chat, history.users) for chat in history.chats.values()],
            "messages": [message_shown(said, self.bot.tracker.progress_table) for said in history.last()],
            "drafts": drafts_shown(self.bot.chats.drafts),
            "lanes": self.lanes(),
            "problems": list(self.bot.supervisor.problems.values()),
        }

    def update(self, update_id: int) -> dict[str, Any] | None:
        """All that is known of an update; None: nothing."""
        update, table = self.bot.update_log.update(update_id), self.bot.tracker.progress_table
        if update is None:
            return None
        own, run = table.get(update_id), table.run_of(update_id)
        calls = self.bot.update_log.calls_of(run.update_id if run else update_id)
        names = ("appended_s", "started_s", "ended_s")
        return {
            "update": update,
            "state": run and run.state,
            "attempt": run.attempt if run else 0,
            "times": {"telegram_s": own and own.telegram_s} | {name: getattr(run, name, None) for name in names},
            "worker": run and run.worker,
            "calls": calls,
            "traceback": run and run.traceback,
            "group": run.group if run else [],
            "steps": timeline(run, own.telegram_s, calls) if run and own else [],
        }

    def kill(self, name: str | None) -> dict[str, Any]:
        killed = self.bot.supervisor.kill(name, self._workers().busy(self._snapshot))
        if killed is None:
            raise ActionError(f"{name} is not running at the moment" if name else "no worker is running at the moment")
        self._show_lanes()  # now, not at the next look
        return killed

    def make_slow(self, *, slow: bool) -> None:
        """Each call of a handler takes so long that a kill hits a handler that runs."""
        self.bot.slow_s = SLOW_S if slow else 0.0
        self._show_lanes()

    async def pause_broadcast(self, id_: str, *, paused: bool) -> None:
        """Pause a broadcast, or resume it."""

        def change(store: Store) -> bool:
            feeder = Feeder(store, self._settings)
            if paused:
                return feeder.broadcasts.set_state(id_, "paused", only_from=("running",))
            return feeder.resume(id_)

        if not await self._changed(change):
            raise ActionError(f"broadcast {id_} is not {'running' if paused else 'paused'}")

    async def replay(self, update_id: int) -> None:
        """Put a buried update back at the end of its lanes."""
        run = self.bot.tracker.progress_table.run_of(update_id)
        update_id = run.update_id if run else update_id
        message_id = f"{self.bot.me()['id']}:{update_id}"
        if not await self._changed(lambda store: store.replay(message_id)):
            raise ActionError(f"update {update_id} is not buried")
        self.bot.tracker.replayed(update_id)

    async def _changed(self, change: Callable[[Store], bool]) -> bool:
        """Make a change in Redis. Returns the answer of `change`; raises ActionError."""

        def changed() -> bool:
            with connect_to(self._settings) as client:
                return change(Store(client))

        try:
            return await asyncio.to_thread(changed)
        except RedisError as error:
            raise ActionError(f"Redis does not answer: {error}") from error
        except UnknownBroadcastError as error:
            raise ActionError(str(error)) from error
