"""The bots that this worker serves, each with its settings, handler and client.

A bot is found by the bot id in a message id (`<bot id>:<update id>`). A bot that cannot be loaded is reported in one
sentence. Calls no handler; the return values and exceptions of the hooks that it calls change no outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from celery.utils.log import get_task_logger

from celery_lanes.protocol import Mode
from celery_lanes.runtime.threads import run_blocking
from celery_lanes.worker import ends_the_worker
from chatlanes.bot.bot import Bot
from chatlanes.bot.context import Context
from chatlanes.bot.loader import is_fully_async, load_bot, load_schedules
from chatlanes.bot.schedules import Schedule, is_occurrence
from chatlanes.bot.session import HandlerPlan, check_order
from chatlanes.logs.process import give_up
from chatlanes.settings import Settings, SettingsError
from chatlanes.settings.bots import AddedBot
from chatlanes.settings.checks import NO_COLLECT, NO_CONTROL
from chatlanes.settings.imports import ImportPathError
from chatlanes.tasks import lateness
from chatlanes.tasks.settings import settings
from chatlanes.telegram.client import BotApi
from chatlanes.telegram.flood import Gate, Rates
from chatlanes.updates.parsing import parse
from chatlanes.updates.routing import OwnName, controlling

if TYPE_CHECKING:
    from chatlanes.tasks.added_bots import AddedBots

logger = get_task_logger(__name__)


class UnknownScheduleError(Exception):
    """The schedule was removed, or only newer workers have it. The attempt fails: another worker may have it."""


@dataclass(frozen=True, eq=False)
class ServedBot:
    """One bot: its settings, its handler, its client, the flood-control gate that all its calls pass, and its schedules
    by their names.
    """

    settings: Settings
    bot: Bot
    api: BotApi
    gate: Gate
    schedules: Mapping[str, Schedule] = field(default_factory=dict)

    @cached_property
    def is_fully_async(self) -> bool:
        return is_fully_async(self.bot, self.schedules.values())

    @property
    def limited(self) -> Bot:
        """The bot with its `on_limited`, which the caller knows to be there, as its handler."""
        return replace(self.bot, handle=self.bot.on_limited)

    def bot_for(self, ctx: Context) -> Bot:
        """The bot; its handler is the function of the schedule if this is an occurrence of one, and `on_stop` for an
        update of CONTROL.

        Raises UnknownScheduleError.
        """
        if not is_occurrence(ctx.update):
            stops = self.stops if self.bot.on_stop else None
            return replace(self.bot, handle=self.bot.on_stop) if stops and stops(ctx.update) else self.bot
        name = ctx.schedule.name
        schedule = self.schedules.get(name)
        if schedule is None:
            raise UnknownScheduleError(f"this worker has no schedule {name} in SCHEDULES")
        return replace(self.bot, handle=schedule.function)

    @cached_property
    def stops(self) -> Callable[[dict[str, Any]], bool] | None:
        """True for an update of CONTROL. Raises ImportPathError."""
        stops = controlling(self.settings.control, OwnName(lambda: str(run_blocking(self._me)["username"])))
        return None if stops is None else lambda update: stops(update, parse(update))

    def _me(self) -> Any:
        return self.api.call("getMe")

    @cached_property
    def default_mode(self) -> Mode:
        """The mode of a chat that has chosen none."""
        if self.settings.collect == NO_COLLECT:
            return "queue"
        modes: dict[str, Mode] = {"off": "collect", "on": "interrupt", "steer": "steer"}
        return modes[self.settings.interrupt]

    @cached_property
    def plan(self) -> HandlerPlan:
        settings = self.settings
        return HandlerPlan(
            session=self.bot.session,
            session_ttl_s=settings.session_ttl,
            has_on_timer=self.bot.on_timer is not None,
            order_by=settings.order_by,
            queues=settings.queues,
            queue_group=settings.queue_group,
            stream_first=settings.stream_first,
            can_stop=settings.control != NO_CONTROL,
        )


class Bots:
    """All bots that this process serves. `added`: those that were added while it runs, by their ids."""

    def __init__(self, served: Iterable[ServedBot], added: AddedBots | None = None) -> None:
        self._by_id = {str(each.settings.bot_id): each for each in served}
        self._added = added

    @classmethod
    def load(cls, settings: Settings) -> Bots:
        """Raises ImportPathError, and SettingsError for a missing token."""
        served = [_load(each) for each in settings.served]
        if settings.bots_key is None:
            return cls(served)
        from chatlanes.tasks.added_bots import AddedBots  # other workers do not need it

        connections = BotApi(settings.bot_api_url, "")
        return cls(served, AddedBots(settings, lambda bot: _load(bot, connections)))

    def __iter__(self) -> Iterator[ServedBot]:
        return iter(self._by_id.values())

    def of(self, message_id: str) -> ServedBot | None:
        """The bot that the message belongs to; None if it is not served here.

        A message without a bot id (appended by hand) belongs to the bot if there is only one.
        """
        bot_id, colon, _ = message_id.partition(":")
        if colon and bot_id.isdecimal():
            served = self._by_id.get(bot_id)
            if served is None and self._added is not None:
                served = self._added.of(int(bot_id)).served
            return served
        return next(iter(self._by_id.values())) if len(self._by_id) == 1 else None

    def unserved(self, message_id: str) -> tuple[str, bool]:
        """Why `of` returns None, if more is known, and whether the bot was removed with its waiting updates."""
        bot_id = message_id.partition(":")[0]
        if self._added is None or not bot_id.isdecimal():
            return "", False
        known = self._added.of(int(bot_id))
        return known.why, known.is_removed

    def removed(self, message_id: str) -> Settings | None:
        """The settings of the bot of the message, if it was removed with its waiting updates."""
        _, is_removed = self.unserved(message_id)
        if self._added is None or not is_removed:
            return None
        return AddedBot.removed(self._added.settings, int(message_id.partition(":")[0]))


@cache
def bots() -> Bots:
    """The bots of this worker. A bot that cannot be loaded ends the process with its traceback and one sentence."""
    try:
        return Bots.load(settings())
    except ImportPathError as error:
        give_up(settings(), str(error), error.__cause__)
    except SettingsError as error:
        give_up(settings(), f"{error}. The worker needs it to call the Bot API.")


def _load(settings: Settings, beside: BotApi | None = None) -> ServedBot:
    api = BotApi(settings.bot_api_url, settings.token, settings.bot_api_files, beside=beside)
    bot = load_bot(settings.bot, settings.name_of("bot"), api, settings.bot_args)
    try:
        check_order(bot.session, settings.order_by)
    except ValueError as error:
        raise ImportPathError(f"{settings.name_of('bot')}={settings.bot}: {error}.") from None
    if settings.user_rate and settings.user_rate_over == "answer" and bot.on_limited is None:
        over = settings.name_of("user_rate_over")
        raise ImportPathError(
            f"{over}=answer, but {settings.bot} has no on_limited: write Bot(…, on_limited=…), or set {over}=drop."
        )
    served = ServedBot(
        settings=settings,
        bot=bot,
        api=api,
        gate=Gate(
            str(settings.bot_id),
            Rates(settings.rate_per_bot, settings.rate_per_chat, settings.rate_per_group),
            settings.flood_wait,
        ),
        schedules=load_schedules(settings.schedules, settings.name_of("schedules"), bot) if settings.schedules else {},
    )
    if settings.max_age is not None:
        lateness.check(served)
    return served


def call_hook(hook: Callable[..., Any] | None, *arguments: Any) -> None:
    """Call the hook, if there is one. Exceptions are logged and otherwise ignored."""
    if hook is None:
        return
    try:
        hook(*arguments)
    except BaseException as error:
        if ends_the_worker(error):
            raise
        logger.exception("the bot's hook %s failed", getattr(hook, "__name__", hook))
