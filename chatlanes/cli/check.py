"""The additions of chatlanes to `lanes check`: deployments of other bots, schedules, and the intake of each bot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from celery_lanes.cli.check import Finding
from celery_lanes.cli.formatting import moment
from celery_lanes.monitoring import inspection
from chatlanes.bot.schedules import MISSED_AFTER_MS
from chatlanes.cli.context import BotContext
from chatlanes.cli.schedules import recorded
from chatlanes.logs.foreign_text import one_line
from chatlanes.settings import Settings
from chatlanes.telegram import BotApiError
from chatlanes.telegram.client import BotApi
from chatlanes.updates import deployments
from chatlanes.updates.added_bots import served_now

#: Hash of a bot's leading poller: fence, holder, until_ms (chatlanes/poller/leader_election.py).
LEADER = "poller:%s:leader"


def checks(lanes: BotContext, of_workers: Iterator[Finding]) -> Iterator[Finding]:
    yield from of_deployments(lanes)
    yield from of_workers
    yield from of_schedules(lanes)
    for bot in lanes.bots():
        yield of_intake(lanes, bot)
    yield from of_added_bots(lanes)


def of_deployments(lanes: BotContext) -> Iterator[Finding]:
    """Deployments of other bots that use the same queues. Only running processes are known."""
    for sentence in deployments.foreign(deployments.processes(lanes.client)):
        yield Finding(False, "deployments", sentence)


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
    leader = leader_of(lanes, bot.bot_id)
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
    """How the updates of added bots come in (BOTS_KEY)."""
    settings = lanes.settings()
    if settings is None or settings.bots_key is None:
        return
    leader, number = leader_of(lanes, "added"), len(served_now(settings))
    by = "webhooks" if settings.webhook_url else _led(leader)
    yield Finding(bool(leader or settings.webhook_url), "added bots", f"{number} were added; {by}")


def leader_of(lanes: BotContext, bot_id: int | str) -> str:
    """`host:pid` of the leading poller; empty if there is none."""
    found: Any = lanes.client.hmget(LEADER % bot_id, "holder", "until_ms")
    holder, until_ms = found
    return str(holder.decode()) if holder and int(until_ms or 0) > inspection.now_us(lanes.client) / 1000 else ""


def _led(leader: str) -> str:
    return f"{leader} polls" if leader else "no poller leads"
