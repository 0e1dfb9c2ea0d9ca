"""`lanes check`: one line per health check of Redis, its durability and clock, the workers and the intake. Exit code 1:
one failed. `lanes acknowledge-loss`: accepts losses.

The checks are independent, except that none runs while Redis does not answer. They change nothing, except that on a
server with `everysec` a temporary key is written to test WAITAOF (chatlanes/lanes/protocol/waitaof.py).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

import click
from kombu.exceptions import OperationalError
from redis import Redis
from redis.exceptions import RedisError

from chatlanes.bot.occurrences import MISSED_AFTER_MS
from chatlanes.cli.command import CommandContext, command
from chatlanes.cli.formatting import age, moment
from chatlanes.cli.schedules import recorded
from chatlanes.lanes.errors import ServerUnfit, complaint
from chatlanes.lanes.monitoring import inspection
from chatlanes.lanes.protocol import data_loss
from chatlanes.lanes.protocol.scripts import digest
from chatlanes.lanes.protocol.server import advice, check_server, durability
from chatlanes.logs.foreign_text import one_line, visible
from chatlanes.settings import Settings
from chatlanes.telegram import BotApiError
from chatlanes.telegram.client import BotApi
from chatlanes.updates import deployments

#: Hash of a bot's leading poller: fence, holder, until_ms (chatlanes/poller/polling/leader_election.py).
LEADER = "poller:%d:leader"
#: The clocks of this machine and Redis may differ by this much without consequences.
CLOCKS_DIFFER_S = 5.0
#: How long to wait for replies of workers. A busy worker replies within this time.
ANSWER_WITHIN_S = 2.0
#: The share of maxmemory from which Redis is reported as full.
FULL = 0.9
#: The number of oldest messages that are examined in each queue group.
MOST_EXAMINED = 10_000

_SHOWN = {True: ("ok   ", "green"), False: ("WRONG", "red"), None: ("-    ", None)}


class Finding(NamedTuple):
    """The result of a check. `is_right` is None if the check could not run or is only informative."""

    is_right: bool | None
    what: str
    sentence: str


def of_redis(lanes: CommandContext, replicas: int) -> Iterator[Finding]:
    """The findings about the server. If the first one is WRONG, it is the only one. Raises RedisError."""
    asked_s = time.monotonic()
    lanes.client.ping()
    took_ms = (time.monotonic() - asked_s) * 1000
    info: Any = lanes.client.info("server")
    name = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info.get('redis_version', '?')}"
    try:
        check_server(lanes.client)
    except ServerUnfit as unfit:
        yield Finding(False, "redis", str(unfit))
        return
    yield Finding(True, "redis", f"{name} at {lanes.place} answers in {took_ms:.1f} ms")
    kept = durability(lanes.client)
    yield Finding(kept.safe, "durability", str(kept))
    for sentence in advice(lanes.client, replicas):
        yield Finding(False, "redis", sentence)
    yield from of_memory(lanes.client.info("memory"))


def of_memory(info: Mapping[str, Any]) -> Iterator[Finding]:
    used, most = int(info["used_memory"]), int(info.get("maxmemory") or 0)
    if most and used > FULL * most:
        figures = f"{used / 1e6:,.1f} of {most / 1e6:,.1f} MB (maxmemory)"
        yield Finding(
            False,
            "memory",
            f"Redis is nearly full: {figures}. When it is full it accepts no new updates: raise maxmemory",
        )


def of_clock(lanes: CommandContext) -> Finding:
    before_s = time.time()
    redis_s = inspection.now_us(lanes.client) / 1e6
    off_s = abs(redis_s - (before_s + time.time()) / 2)
    if off_s > CLOCKS_DIFFER_S:
        return Finding(False, "clock", f"this machine and Redis differ by {age(off_s)}: synchronize both with NTP")
    return Finding(True, "clock", f"this machine and Redis differ by less than {max(off_s, 0.001) * 1.1:.3f} s")


def of_deployments(lanes: CommandContext) -> Iterator[Finding]:
    """Deployments of other bots that use the same queues. Only running processes are known."""
    for sentence in deployments.foreign(deployments.processes(lanes.client)):
        yield Finding(False, "deployments", sentence)


def of_workers(lanes: CommandContext) -> Iterator[Finding]:
    try:
        replies = lanes.app.control.broadcast("lanes", reply=True, timeout=ANSWER_WITHIN_S) or []
    except OperationalError as error:  # Redis accepts no writes, and a broadcast is a write
        yield Finding(False, "workers", f"cannot be queried: {complaint(error)}")
        return
    if not replies:
        yield Finding(False, "workers", "no worker answers: start one (a solo worker answers only between updates)")
    answers, declared = answers_by_worker(replies), [queue for _, queue in lanes.queues]
    yield from of_worker_answers(answers, digest(), declared)
    yield from namesakes(replies)
    if replies:
        read = {queue for answer in answers.values() for queue in answer.get("queues", ())}
        yield from of_unread_queues(lanes.client, read.union(declared))


def answers_by_worker(replies: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The replies by worker name. The process id is added for workers that share a name (two on one machine without
    -n).
    """
    named = [(name, answer) for reply in replies for name, answer in reply.items()]
    count = Counter(name for name, _ in named)
    process = {id(answer): str(answer.get("holder", "?")).rpartition(":")[0] for _, answer in named}
    return {name if count[name] == 1 else f"{name} ({process[id(answer)]})": answer for name, answer in named}


def namesakes(replies: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """Workers that share a name. Lanes work with them, but Celery and Flower identify workers by name."""
    for name, count in sorted(Counter(name for reply in replies for name in reply).items()):
        if count > 1:
            sentence = (
                f"{count} workers are named {name}, and Flower shows only one of them: give each its own name with -n, "
                "such as -n one@%h"
            )
            yield Finding(None, "workers", sentence)


def of_worker_answers(answers: Mapping[str, Any], ours: str, queues: Iterable[str]) -> Iterator[Finding]:
    """`answers`: the result of `answers_by_worker`; lanes/monitoring/remote_control.py makes the replies."""
    read: set[str] = set()
    for name, answer in sorted(answers.items()):
        if "scripts" not in answer:
            yield Finding(False, "worker", f"{name} does not support lanes: {answer.get('error', 'restart it')}")
            continue
        read |= set(answer["queues"])
        holds = f"{name} holds {answer['holding']} updates for {answer['slots']} slots"
        if answer["scripts"] != ours:
            yield Finding(False, "worker", f"{holds}, but runs another version of the scripts: restart it")
        else:
            yield Finding(True, "worker", holds)
    unread = [queue for queue in queues if queue not in read]
    if answers and unread:
        yield Finding(
            False, "queues", f"no worker reads {', '.join(unread)}: start a worker for these queues, or one without -Q"
        )


def of_unread_queues(client: Redis, known: Collection[str]) -> Iterator[Finding]:
    """Updates in queues outside `known`: above QUEUES, or of a bot that BOTS no longer names. Raises RedisError."""
    unread: Counter[str] = Counter()
    is_partial = False
    for group in inspection.groups(client):
        ids = inspection.pending(client, group, MOST_EXAMINED)
        is_partial = is_partial or len(ids) == MOST_EXAMINED
        unread.update(record.queue for record in inspection.records(client, ids) if record.queue not in known)
    if unread:
        number = f"{'at least ' if is_partial else ''}{unread.total()}"
        sentence = (
            f"{number} updates wait in {', '.join(sorted(unread))}, which no worker reads: restore the former QUEUES "
            "(or BOTS) until they are processed"
        )
        yield Finding(False, "queues", sentence)


def of_schedules(lanes: CommandContext) -> Iterator[Finding]:
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


def of_intake(lanes: CommandContext, bot: Settings) -> Finding:
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


def leader_of(lanes: CommandContext, bot_id: int) -> str:
    """`host:pid` of the leading poller; empty if there is none."""
    found: Any = lanes.client.hmget(LEADER % bot_id, "holder", "until_ms")
    holder, until_ms = found
    return str(holder.decode()) if holder and int(until_ms or 0) > inspection.now_us(lanes.client) / 1000 else ""


def _led(leader: str) -> str:
    return f"{leader} polls" if leader else "no poller leads"


def findings(lanes: CommandContext, bots: Iterable[Settings], replicas: int) -> Iterator[Finding]:
    """The findings of all checks, as the checks run."""
    try:
        yield from of_redis(lanes, replicas)
        yield of_clock(lanes)
    except RedisError as error:
        yield Finding(False, "redis", lanes.no_answer(error))
        return
    for loss in inspection.losses(lanes.client):
        yield Finding(False, "loss", data_loss.sentence(loss))
    for what, since_ms in sorted(inspection.paused(lanes.client).items()):
        yield Finding(None, "paused", f"{what.replace(':', ' ', 1)}, since {moment(since_ms)}")
    yield from of_deployments(lanes)
    yield from of_workers(lanes)
    yield from of_schedules(lanes)
    for bot in bots:
        yield of_intake(lanes, bot)


@command("check")
def check(lanes: CommandContext) -> None:
    """Check Redis, its durability, the clocks, the workers and their versions, and the intake. Code 1: one failed."""
    bots = lanes.bots()
    replicas = bots[0].durable_replicas if bots else 0
    is_right = True
    for finding in findings(lanes, bots, replicas):
        word, colour = _SHOWN[finding.is_right]
        click.echo(f"{click.style(word, fg=colour)} {finding.what}: {visible(finding.sentence)}")
        is_right = is_right and finding.is_right is not False
    if not is_right:
        click.get_current_context().exit(1)


@command("acknowledge-loss")
def acknowledge_loss(lanes: CommandContext) -> None:
    """Acknowledge reported losses of data in Redis, so that `check` passes again."""
    losses = sorted(lanes.store.acknowledge_losses())
    if not losses:
        click.echo("there is no loss to acknowledge")
    for loss in losses:
        click.echo(f"acknowledged: updates {loss.first:,} to {loss.last:,}, noticed {moment(loss.at_ms)}")
