"""The additions of chatlanes to `lanes check`: settings, other deployments, schedules, and the intake of each bot."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from celery_lanes.cli.check import Finding
from celery_lanes.cli.formatting import moment
from celery_lanes.monitoring import inspection
from chatlanes.bot.schedules import MISSED_AFTER_MS
from chatlanes.bots import AddError, check_handler
from chatlanes.cli.context import BotContext
from chatlanes.cli.schedules import recorded
from chatlanes.logs.foreign_text import one_line
from chatlanes.settings import Settings, settings_warnings
from chatlanes.settings.bots import AddedBot
from chatlanes.telegram import BotApiError
from chatlanes.telegram.client import BotApi
from chatlanes.updates import deployments
from chatlanes.updates.added_bots import NotOpenedError, Registry

#: Hash of a bot's leading poller: fence, holder, until_ms (chatlanes/poller/leader_election.py).
LEADER = "poller:%s:leader"
#: Of the added bots, which may be thousands.
MOST_ASKED = 20


def checks(lanes: BotContext, of_workers: Iterator[Finding]) -> Iterator[Finding]:
    yield from of_settings()
    yield from of_deployments(lanes)
    yield from of_workers
    yield from of_schedules(lanes)
    for bot in lanes.bots():
        yield of_intake(lanes, bot)
    yield from of_added_bots(lanes)


def of_settings() -> Iterator[Finding]:
    """Names that look like a misspelled setting, and lines of .env that are not read."""
    for sentence in settings_warnings():
        yield Finding(None, "settings", sentence)


def of_deployments(lanes: BotContext) -> Iterator[Finding]:
    """Deployments of other bots that use the same queues, and settings that differ within one. Only running processes
    are known.
    """
    alive = deployments.processes(lanes.client)
    for sentence in deployments.foreign(alive):
        yield Finding(False, "deployments", sentence)
    for sentence in deployments.differing(alive):
        yield Finding(False, "settings", sentence)


def of_schedules(lanes: BotContext) -> Iterator[Finding]:
    """Schedules that are not fired, because no worker watches them or because Redis' clock was set back."""
    now_ms, found = recorded(lanes.store)
    for bot_id, name, record, next_ms in found:
        what = f"schedule {name}"
        if next_ms is not None and next_ms < now_ms - MISSED_AFTER_MS:
            sentence = (
                f"was due at {moment(next_ms)} and was not fired: start a worker of bot {bot_id} with SCHEDULES, or if "
                f"no worker should have it, run `chatlanes lanes schedules remove {name}`"
            )
            yield Finding(False, what, sentence)
        elif record.after_ms > now_ms + MISSED_AFTER_MS:
            sentence = (
                f"is not fired before {moment(record.after_ms)}, because the clock of Redis was set back: correct the "
                "clock, or give the schedule another name"
            )
            yield Finding(False, what, sentence)


def of_intake(lanes: BotContext, bot: Settings) -> Finding:
    """How this bot's updates come in: by a leading poller, or by a webhook that is set at Telegram."""
    what = f"intake {bot.bot_name}".rstrip()
    if bot.bot_token is None:
        return Finding(None, what, "cannot be checked without the bot's token")
    return _intake(bot, leader_of(lanes, bot.bot_id), what)


def _intake(bot: Settings, leader: str, what: str) -> Finding:
    try:
        with closing(BotApi(bot.bot_api_url, bot.token, connect_timeout_s=5.0, read_timeout_s=10.0)) as api:
            webhook = api.call("getWebhookInfo")
    except BotApiError as error:
        return Finding(False, what, f"{_led(leader)}; getWebhookInfo failed: {error}")
    url, waiting = str(webhook.get("url") or ""), webhook.get("pending_update_count", 0)
    if url and leader:
        return Finding(False, what, f"{_led(leader)}, but gets no updates, because a webhook is set: {url}")
    if url:
        failure = webhook.get("last_error_message")
        last = f"; last error reported by Telegram: {one_line(failure)}" if failure else ""
        return Finding(not failure or not waiting, what, f"webhook at {url}, {waiting} updates wait at Telegram{last}")
    if leader:
        return Finding(True, what, f"{_led(leader)}, {waiting} updates wait at Telegram")
    return Finding(False, what, f"{_led(leader)} and no webhook is set: {waiting} updates wait at Telegram")


def of_added_bots(lanes: BotContext) -> Iterator[Finding]:
    """How the updates of added bots come in (BOTS_KEY), and a line for each bot that is not served. Of many bots,
    Telegram is asked about MOST_ASKED.
    """
    settings = lanes.settings()
    if settings is None or settings.bots_key is None:
        return
    bots, problems = _added(settings)
    leader = "" if settings.webhook_url else leader_of(lanes, "added")
    by = "webhooks" if settings.webhook_url else _led(leader)
    asked = f"; Telegram was asked about {MOST_ASKED}" if len(bots) > MOST_ASKED else ""
    number = len(bots) + len(problems)
    yield Finding(bool(leader or settings.webhook_url), "added bots", f"{number} were added; {by}{asked}")
    yield from problems
    with ThreadPoolExecutor(MOST_ASKED) as pool:
        found = pool.map(lambda bot: _intake(bot, leader, f"added bot {bot.bot_id}"), bots[:MOST_ASKED])
        yield from (each for each in found if not each.is_right)
    yield from _unloadable(bots)


def _added(settings: Settings) -> tuple[list[AddedBot], list[Finding]]:
    """The added bots that are not configured ones too, and a finding for each whose record or token is unreadable."""
    bots, problems = [], []
    with closing(Registry.connect(settings)) as registry:
        for bot_id, stored in registry.all_stored().items():
            try:
                bot = registry.settings_of(bot_id, stored)
            except NotOpenedError as error:
                problems.append(Finding(False, f"added bot {bot_id}", str(error)))
            else:
                bots += [bot] if bot and bot_id not in registry.configured else []
    return bots, problems


def _unloadable(bots: list[AddedBot]) -> Iterator[Finding]:
    """A finding for each bot whose handler cannot be imported here, or cannot serve an added bot."""
    for bot in bots:
        try:
            check_handler(bot.bot, bot.token)
        except AddError as error:
            yield Finding(False, f"added bot {bot.bot_id}", str(error))


def leader_of(lanes: BotContext, bot_id: int | str) -> str:
    """`host:pid` of the leading poller; empty if there is none."""
    found: Any = lanes.client.hmget(LEADER % bot_id, "holder", "until_ms")
    holder, until_ms = found
    return str(holder.decode()) if holder and int(until_ms or 0) > inspection.now_us(lanes.client) / 1000 else ""


def _led(leader: str) -> str:
    return f"{leader} polls" if leader else "no poller leads"
