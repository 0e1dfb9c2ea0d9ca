"""Health checks: Redis, its durability and clock, the workers, and the intake.

Every check returns a finding, whatever the others found. Nothing is changed, except that on a server with `everysec` a
key of its own is written to try WAITAOF (chatlanes/lanes/protocol/waitaof.py).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

from kombu.exceptions import OperationalError
from redis import Redis
from redis.exceptions import RedisError

from chatlanes.cli.command import CommandContext
from chatlanes.cli.formatting import age, moment
from chatlanes.lanes.errors import ServerUnfit, complaint
from chatlanes.lanes.monitoring import inspection
from chatlanes.lanes.protocol import data_loss
from chatlanes.lanes.protocol.scripts import digest
from chatlanes.lanes.protocol.server import advice, check_server, durability
from chatlanes.logs.foreign_text import one_line
from chatlanes.settings import Settings
from chatlanes.telegram import BotApiError
from chatlanes.telegram.client import BotApi
from chatlanes.updates import deployments

#: Hash of a bot's leading poller: fence, holder, until_ms (chatlanes/poller/polling/leader_election.py).
LEADER = "poller:%d:leader"
#: What workers on this machine and Redis say of the time may differ by so much without anybody noticing.
CLOCKS_DIFFER_S = 5.0
#: A busy worker answers within so long.
ANSWER_WITHIN_S = 2.0
#: Of its memory.
FULL = 0.9
#: Of each group of queues, the oldest messages.
LOOKED_AT = 10_000


class Finding(NamedTuple):
    """`is_right` None: it could not be found out, or does not matter here."""

    is_right: bool | None
    what: str
    sentence: str


def of_redis(lanes: CommandContext, replicas: int) -> Iterator[Finding]:
    """Nothing else can be found out when the first one is wrong. Raises RedisError."""
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
    yield Finding(True, "redis", f"{name} answers in {took_ms:.1f} ms")
    kept = durability(lanes.client)
    yield Finding(kept.safe, "durability", str(kept))
    for sentence in advice(lanes.client, replicas):
        yield Finding(False, "redis", sentence)
    yield from of_memory(lanes.client.info("memory"))


def of_memory(info: Mapping[str, Any]) -> Iterator[Finding]:
    used, most = int(info["used_memory"]), int(info.get("maxmemory") or 0)
    if most and used > FULL * most:
        figures = f"{used / 1e6:,.1f} of {most / 1e6:,.1f} MB (maxmemory)"
        yield Finding(False, "memory", f"Redis is full, or soon: {figures}; then nothing new comes in. Give it more")


def of_clock(lanes: CommandContext) -> Finding:
    before_s = time.time()
    redis_s = inspection.now_us(lanes.client) / 1e6
    off_s = abs(redis_s - (before_s + time.time()) / 2)
    if off_s > CLOCKS_DIFFER_S:
        return Finding(False, "clock", f"this machine and Redis differ by {age(off_s)}: let NTP set both")
    return Finding(True, "clock", f"this machine and Redis differ by less than {max(off_s, 0.001) * 1.1:.3f} s")


def of_deployments(lanes: CommandContext) -> Iterator[Finding]:
    """Of other bots, whose updates this one's workers would be handed. Only processes that run have announced it."""
    for sentence in deployments.foreign(deployments.processes(lanes.client)):
        yield Finding(False, "deployments", sentence)


def of_workers(lanes: CommandContext) -> Iterator[Finding]:
    try:
        replies = lanes.app.control.broadcast("lanes", reply=True, timeout=ANSWER_WITHIN_S) or []
    except OperationalError as error:  # Redis takes no writes, and to ask is one
        yield Finding(False, "workers", f"cannot be asked: {complaint(error)}")
        return
    if not replies:
        yield Finding(False, "workers", "none answers: start one (a solo worker answers between two updates)")
    answers, declared = answers_by_worker(replies), [queue for _, queue in lanes.queues]
    yield from of_worker_answers(answers, digest(), declared)
    yield from namesakes(replies)
    if replies:
        read = {queue for answer in answers.values() for queue in answer.get("queues", ())}
        yield from of_unread_queues(lanes.client, read.union(declared))


def answers_by_worker(replies: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Those of the same name, two on one machine started without -n, stay apart by their process ids."""
    run = [(name, answer) for reply in replies for name, answer in reply.items()]
    often = Counter(name for name, _ in run)
    process = {id(answer): str(answer.get("holder", "?")).rpartition(":")[0] for _, answer in run}
    return {name if often[name] == 1 else f"{name} ({process[id(answer)]})": answer for name, answer in run}


def namesakes(replies: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """Lanes do not mind, but Celery knows its workers by their names."""
    for name, count in sorted(Counter(name for reply in replies for name in reply).items()):
        if count > 1:
            sentence = f"{count} are called {name}, and Flower shows one of them: start each with a name, -n one@%h"
            yield Finding(None, "workers", sentence)


def of_worker_answers(answers: Mapping[str, Any], ours: str, queues: Iterable[str]) -> Iterator[Finding]:
    """`answers` are those of lanes/monitoring/remote_control.py, by worker, as `answers_by_worker` has them."""
    read: set[str] = set()
    for name, answer in sorted(answers.items()):
        if "scripts" not in answer:
            yield Finding(False, "worker", f"{name} does not know of lanes: {answer.get('error', 'restart it')}")
            continue
        read |= set(answer["queues"])
        holds = f"{name} holds {answer['holding']} updates for {answer['slots']} slots"
        if answer["scripts"] != ours:
            yield Finding(False, "worker", f"{holds}, with other scripts than this version's: restart it")
        else:
            yield Finding(True, "worker", holds)
    unread = [queue for queue in queues if queue not in read]
    if answers and unread:
        yield Finding(False, "queues", f"no worker reads {', '.join(unread)}: start one for them, or one without -Q")


def of_unread_queues(client: Redis, known: Collection[str]) -> Iterator[Finding]:
    """Updates in queues outside `known`: above QUEUES, or of a bot that BOTS no longer names. Raises RedisError."""
    unread: Counter[str] = Counter()
    is_partial = False
    for group in inspection.groups(client):
        ids = inspection.pending(client, group, LOOKED_AT)
        is_partial = is_partial or len(ids) == LOOKED_AT
        unread.update(record.queue for record in inspection.records(client, ids) if record.queue not in known)
    if unread:
        number = f"{'at least ' if is_partial else ''}{unread.total()}"
        sentence = (
            f"{number} updates wait in {', '.join(sorted(unread))}, which no worker reads: set QUEUES (or BOTS) as it "
            "was until they are through"
        )
        yield Finding(False, "queues", sentence)


def of_intake(lanes: CommandContext, bot: Settings) -> Finding:
    """Who brings this bot's updates in: a poller that leads, or a webhook that Telegram knows."""
    what = f"intake {bot.bot_name}".rstrip()
    if bot.bot_token is None:
        return Finding(None, what, "cannot be looked at without the bot's token")
    leader = leader_of(lanes, bot.bot_id)
    try:
        with closing(BotApi(bot.bot_api_url, bot.token, connect_timeout_s=5.0, read_timeout_s=10.0)) as api:
            webhook = api.call("getWebhookInfo")
    except BotApiError as error:
        return Finding(False, what, f"{_led(leader)}, and Telegram does not tell of a webhook: {error}")
    url, waiting = str(webhook.get("url") or ""), webhook.get("pending_update_count", 0)
    if url and leader:
        return Finding(False, what, f"{_led(leader)}, and gets nothing, for there is a webhook at {url}")
    if url:
        trouble = webhook.get("last_error_message")
        run = f"; Telegram's last trouble with it: {one_line(trouble)}" if trouble else ""
        return Finding(not trouble or not waiting, what, f"webhook at {url}, {waiting} updates wait at Telegram{run}")
    if leader:
        return Finding(True, what, f"{_led(leader)}, {waiting} updates wait at Telegram")
    return Finding(False, what, f"{_led(leader)} and there is no webhook: {waiting} updates wait at Telegram")


def leader_of(lanes: CommandContext, bot_id: int) -> str:
    """`host:pid` of the poller that leads; empty: none."""
    found: Any = lanes.client.hmget(LEADER % bot_id, "holder", "until_ms")
    holder, until_ms = found
    return str(holder.decode()) if holder and int(until_ms or 0) > inspection.now_us(lanes.client) / 1000 else ""


def _led(leader: str) -> str:
    return f"{leader} polls" if leader else "nobody polls"


def findings(lanes: CommandContext, bots: Iterable[Settings], replicas: int) -> Iterator[Finding]:
    """All of them, as they are found."""
    try:
        yield from of_redis(lanes, replicas)
        yield of_clock(lanes)
    except RedisError as error:
        yield Finding(False, "redis", f"{lanes.place} does not answer: {complaint(error)}")
        return
    for loss in inspection.losses(lanes.client):
        yield Finding(False, "loss", data_loss.sentence(loss))
    for what, since_ms in sorted(inspection.paused(lanes.client).items()):
        yield Finding(None, "paused", f"{what.replace(':', ' ', 1)}, since {moment(since_ms)}")
    yield from of_deployments(lanes)
    yield from of_workers(lanes)
    for bot in bots:
        yield of_intake(lanes, bot)
