"""How the commands of chatlanes differ from those of any app with lanes: bots and their names, chats, jobs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import click
from redis import Redis
from redis.exceptions import ConnectionError, RedisError, TimeoutError  # noqa: A004

from celery_lanes.cli.context import Context
from celery_lanes.cli.formatting import age
from celery_lanes.monitoring import inspection
from celery_lanes.monitoring.inspection import Record
from celery_lanes.protocol import StoredTimer
from celery_lanes.words import Words
from chatlanes.bot.adapters.ptb.job_storage import NEVER_MS
from chatlanes.logs.errors import traceback_of
from chatlanes.logs.redaction import Secrets
from chatlanes.settings import Settings, running_sandbox
from chatlanes.settings.checks import ORDERS
from chatlanes.updates.added_bots import added_ids
from chatlanes.updates.words import WORDS

#: Jobs of python-telegram-bot do not belong to a chat, but to their name; those of a chat are in its lane.
_JOBS = "/jobs/"
#: The name of a repeating job's next run is that of its record, which is never due, and this.
_NEXT = " next"
#: The most waiting messages of each group of queues, and the most groups before the update, that are searched.
MOST_WAITING, MOST_READ = 10_000, 1_000


@dataclass
class BotContext(Context):
    """What the commands know of bots. commands.py extends it by commands, checks and metrics of their own."""

    words: ClassVar[Words] = WORDS
    unnamed_owners: ClassVar[str] = _JOBS
    never_ms: ClassVar[float] = NEVER_MS

    def __post_init__(self) -> None:
        if self.app.main == "chatlanes":
            os.environ.update(running_sandbox.supplied())  # before the app reads its settings

    # -- settings and bots

    def settings(self) -> Settings | None:
        """None only in tests, for an app of another name."""
        if self.app.main != "chatlanes":
            return None
        from chatlanes.tasks.settings import settings

        return settings()

    def bots(self) -> tuple[Settings, ...]:
        found = self.settings()
        return found.served if found else ()

    @cached_property
    def names(self) -> dict[str, str]:
        """The display name of each queue group: with BOTS, the name of its bot."""
        named = {bot.queue_group: bot.bot_name for bot in self.bots() if bot.bot_name}
        return {group: named.get(group, group) for group, _ in self.queues}

    @cached_property
    def bot_ids(self) -> dict[int, str]:
        return self.read_bot_ids()

    def read_bot_ids(self) -> dict[int, str]:
        """Bot id -> display name of its queue group, of bots whose tokens are known here; of added ones, the id."""
        named = {bot.bot_id: self.names[bot.queue_group] for bot in self.bots() if bot.bot_token is not None}
        settings = self.settings()
        if settings is None or settings.bots_key is None:
            return named
        return {bot_id: str(bot_id) for bot_id in added_ids(self.client)} | named

    def traceback_of(self, error: BaseException) -> str:
        """From the first frame of the bot's own code on, without the secrets of the settings."""
        settings = self.settings()
        return traceback_of(error, Secrets.of(settings) if settings else Secrets())

    @property
    def replicas(self) -> int:
        settings = self.settings()
        return settings.durable_replicas if settings else 0

    def no_answer(self, error: RedisError) -> str:
        """Also says where the address comes from."""
        sentence = super().no_answer(error)
        settings = self.settings()
        if settings is None or type(error) not in (ConnectionError, TimeoutError):  # not one that asks for a password
            return sentence
        sandbox = running_sandbox.find().get("REDIS_URL", settings.redis_url)
        if sandbox != settings.redis_url:
            return f"{sentence} A sandbox runs in this folder, at {sandbox}: unset REDIS_URL and BOT_TOKEN to use it"
        return f"{sentence} Start Redis there, set REDIS_URL, or change to the folder in which your sandbox runs"

    def say(self, sentence: str) -> None:
        """In the format that LOG_FORMAT sets."""
        from chatlanes.logs.process import say

        settings = self.settings()
        if settings is not None and settings.log_format == "json":
            say(settings, sentence)
        else:
            super().say(sentence)

    # -- chats

    def checked_lane(self, text: str) -> str:
        """A chat's number, or the key of a lane. Where ORDER_BY makes the keys, a key may be any text."""
        bots = self.bots()
        if not bots or not all(bot.order_by in ORDERS for bot in bots):
            return text
        chat = text.strip()
        if not re.fullmatch(r"-?\d+|.*[:/].*|bot", chat):
            raise click.BadParameter(f"{chat} is neither the number of a chat nor the key of a lane, such as user:7")
        return chat

    def is_of(self, lane: str, selected: str) -> bool:
        return is_of_chat(lane, selected)

    def run_of(self, message_id: str) -> Record | None:
        return run_of(self.client, message_id)

    def ids_of(self, record: Record) -> list[str]:
        return ids_of(self.client, record)

    # -- timers

    def is_timer_of_group(self, timer: StoredTimer, group: str | None) -> bool:
        bot_id = timer.owner.partition("/")[0]
        return group is None or (bot_id.isdecimal() and self.bot_ids.get(int(bot_id)) == group)

    def timers_of_group(self, group: str) -> list[StoredTimer]:
        bot_ids = [bot_id for bot_id, name in self.bot_ids.items() if name == group]
        return self.store.timers(*(owner for each in bot_ids for owner in self.store.timer_owners(f"{each}/")))

    def names_with(self, timer: StoredTimer) -> tuple[str, ...]:
        """With the next run of a repeating job, its record."""
        record = timer.name.removesuffix(_NEXT)
        return (record, record + _NEXT) if _JOBS in timer.owner else (timer.name,)

    # -- what bots add

    def notices(self) -> tuple[list[str], dict[str, Any]]:
        """The flood pauses of the bots whose tokens are known here."""
        from chatlanes.telegram.flood import flood_pauses

        lines, waits = list[str](), list[dict[str, Any]]()
        for bot_id, name in self.bot_ids.items():
            for pause in flood_pauses(self.client, bot_id):
                left_s = round(pause.left_s, 1)
                lines.append(f"flood wait: {pause.what} waits for {age(left_s)} more ({name})")
                waits.append({"bot": name, "what": pause.what, "left_s": left_s})
        return lines, {"flood_waits": waits}


def is_of_chat(lane: str, chat: str) -> bool:
    """`chat` is a number, or a lane's key with or without the bot's id before it.

    A number includes all lanes of the chat: its topics, and its business and guest messages.
    """
    key = lane.partition("/")[2] or lane
    if chat in (lane, key):
        return True
    kind, *rest = key.split(":")
    if kind in ("chat", "guest", "user"):
        return rest == [chat]
    return (kind == "topic" and rest[:1] == [chat]) or (kind == "business" and rest[-1:] == [chat])


# -- collected updates (COLLECT): only the first has a record; the content of the others is stored with it


def run_of(client: Redis, message_id: str) -> Record | None:
    """The record of this message, or of the one with which it was collected. None: there is neither."""
    return next(inspection.records(client, [message_id]), None) or _run_with(client, message_id)


def ids_of(client: Redis, record: Record) -> list[str]:
    """The ids of all messages of a run, the oldest first."""
    if record.size == 1:
        return [record.id]
    bot = record.id.rpartition(":")[0]
    updates = inspection.contents(client, record.id)
    return [record.id, *(f"{bot}:{each.get('update_id')}" for each in updates[1:] if isinstance(each, dict))]


def _run_with(client: Redis, message_id: str) -> Record | None:
    """Searches dead letters and the oldest waiting messages; those with ids right before this one first."""
    bot, _, number = message_id.rpartition(":")
    if not number.isdecimal():
        return None
    waiting = [each for group in inspection.groups(client) for each in inspection.pending(client, group, MOST_WAITING)]
    before: dict[int, str] = {}
    for each in (*inspection.dead(client), *waiting):
        its_bot, _, its_number = each.rpartition(":")
        if its_bot == bot and its_number.isdecimal() and int(its_number) < int(number):
            before[int(its_number)] = each
    nearest = [before[each] for each in sorted(before, reverse=True)]
    runs = [record for record in inspection.records(client, nearest) if record.size > 1]
    return next((record for record in runs[:MOST_READ] if message_id in ids_of(client, record)), None)
