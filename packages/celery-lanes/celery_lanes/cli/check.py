"""`lanes check`: one line per health check of Redis, its durability and clock, and the workers. Exit code 1: one
failed. `lanes acknowledge-loss`: accepts losses.

The checks are independent, except that none runs while Redis does not answer. They change nothing, except that a
temporary key is written to test the rights of the user, and on a server with `everysec` another one to test WAITAOF
(celery_lanes/protocol/server.py).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import click
from kombu.exceptions import OperationalError
from kombu.transport.redis import Channel
from redis import Redis
from redis.exceptions import RedisError

from celery_lanes.cli.context import Context, command
from celery_lanes.cli.formatting import age, moment, visible
from celery_lanes.errors import ServerUnfit, complaint
from celery_lanes.monitoring import inspection
from celery_lanes.outbox import tables
from celery_lanes.protocol import advice, check_rights, check_server, data_loss, digest, durability
from celery_lanes.words import NEUTRAL, Words

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


def of_redis(lanes: Context) -> Iterator[Finding]:
    """The findings about the server. If the first one is WRONG, it is the only one. Raises RedisError."""
    asked_s = time.monotonic()
    lanes.client.ping()
    took_ms = (time.monotonic() - asked_s) * 1000
    info: Any = lanes.client.info("server")
    name = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info.get('redis_version', '?')}"
    try:
        check_server(lanes.client)
        check_rights(lanes.store)
    except ServerUnfit as unfit:
        yield Finding(False, "redis", str(unfit))
        return
    yield Finding(True, "redis", f"{name} at {lanes.place} answers in {took_ms:.1f} ms")
    kept = durability(lanes.client, lanes.words)
    yield Finding(kept.safe, "durability", str(kept))
    for sentence in advice(lanes.client, lanes.replicas, lanes.words):
        yield Finding(False, "redis", sentence)
    yield from of_memory(lanes.client.info("memory"), lanes.words)


def of_memory(info: Mapping[str, Any], words: Words) -> Iterator[Finding]:
    used, most = int(info["used_memory"]), int(info.get("maxmemory") or 0)
    if most and used > FULL * most:
        figures = f"{used / 1e6:,.1f} of {most / 1e6:,.1f} MB (maxmemory)"
        yield Finding(
            False,
            "memory",
            f"Redis is nearly full: {figures}. When it is full it accepts no new {words.message}s: raise maxmemory",
        )


def of_priorities(lanes: Context) -> Iterator[Finding]:
    """Messages that clients without lanes have published to a lane queue with a priority: kombu has lists for these."""
    for _, queue in lanes.queues:
        lists = [f"{queue}{Channel.sep}{step}" for step in Channel.priority_steps[1:]]
        if count := sum(lanes.client.llen(name) for name in lists):
            yield Finding(
                False,
                "queues",
                f"{count:,} {lanes.words.message}s wait in {queue} with a priority, which lanes do not read: a client "
                f"without lanes has published them. `lanes adopt {queue}` moves them",
            )


def of_clock(lanes: Context) -> Finding:
    before_s = time.time()
    redis_s = inspection.now_us(lanes.client) / 1e6
    off_s = abs(redis_s - (before_s + time.time()) / 2)
    if off_s > CLOCKS_DIFFER_S:
        return Finding(False, "clock", f"this machine and Redis differ by {age(off_s)}: synchronize both with NTP")
    return Finding(True, "clock", f"this machine and Redis differ by less than {max(off_s, 0.001) * 1.1:.3f} s")


def of_workers(lanes: Context) -> Iterator[Finding]:
    words = lanes.words
    try:
        replies = lanes.app.control.broadcast("lanes", reply=True, timeout=ANSWER_WITHIN_S) or []
    except OperationalError as error:  # Redis accepts no writes, and a broadcast is a write
        yield Finding(False, "workers", f"cannot be queried: {complaint(error)}")
        return
    if not replies:
        yield Finding(
            False, "workers", f"no worker answers: start one (a solo worker answers only between {words.message}s)"
        )
    answers, declared = answers_by_worker(replies), [queue for _, queue in lanes.queues]
    yield from of_worker_answers(answers, digest(), declared, words)
    yield from namesakes(replies)
    if replies:
        read = {queue for answer in answers.values() for queue in answer.get("queues", ())}
        yield from of_unread_queues(lanes.client, read.union(declared), words)


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


def of_worker_answers(
    answers: Mapping[str, Any], ours: str, queues: Iterable[str], words: Words = NEUTRAL
) -> Iterator[Finding]:
    """`answers`: the result of `answers_by_worker`; monitoring/remote_control.py makes the replies."""
    read: set[str] = set()
    for name, answer in sorted(answers.items()):
        if "scripts" not in answer:
            yield Finding(False, "worker", f"{name} does not support lanes: {answer.get('error', 'restart it')}")
            continue
        read |= set(answer["queues"])
        holds = f"{name} holds {answer['holding']} {words.message}s for {answer['slots']} slots"
        if answer["scripts"] != ours:
            yield Finding(
                False, "worker", f"{holds}, but has other scripts: restart it, or give its app another database"
            )
        else:
            yield Finding(True, "worker", holds)
    unread = [queue for queue in queues if queue not in read]
    if answers and unread:
        yield Finding(
            False, "queues", f"no worker reads {', '.join(unread)}: start a worker for these queues, or one without -Q"
        )


def of_unread_queues(client: Redis, known: Collection[str], words: Words) -> Iterator[Finding]:
    """Messages in queues outside `known`. Raises RedisError."""
    unread: Counter[str] = Counter()
    is_partial = False
    for group in inspection.groups(client):
        ids = inspection.pending(client, group, MOST_EXAMINED)
        is_partial = is_partial or len(ids) == MOST_EXAMINED
        unread.update(record.queue for record in inspection.records(client, ids) if record.queue not in known)
    if unread:
        number = f"{'at least ' if is_partial else ''}{unread.total()}"
        sentence = (
            f"{number} {words.message}s wait in {', '.join(sorted(unread))}, which no worker reads: {words.unread}"
        )
        yield Finding(False, "queues", sentence)


def of_outbox(lanes: Context) -> Iterator[Finding]:
    """Entries that `lanes outbox` leaves. Nothing for an app without an outbox."""
    try:
        if "DJANGO_SETTINGS_MODULE" in os.environ:
            lanes.app.loader.import_default_modules()  # which sets up Django
        found = [table for table in tables if table.app is lanes.app]
        failed = sum(table.count_failed() for table in found)
    except Exception as error:  # of any database
        yield Finding(False, "outbox", f"its entries cannot be counted: {error}")
        return
    if failed:
        yield Finding(False, "outbox", f"{failed:,} of its entries cannot be published: their column error says why")
    elif found:
        yield Finding(True, "outbox", "none of its entries has failed")


def findings(lanes: Context) -> Iterator[Finding]:
    """The findings of all checks, as the checks run."""
    try:
        yield from of_redis(lanes)
        yield of_clock(lanes)
        yield from of_priorities(lanes)
    except RedisError as error:
        yield Finding(False, "redis", lanes.no_answer(error))
        return
    for loss in inspection.losses(lanes.client):
        yield Finding(False, "loss", data_loss.sentence(loss, lanes.words))
    for what, since_ms in sorted(inspection.paused(lanes.client).items()):
        yield Finding(None, "paused", f"{what.replace(':', ' ', 1)}, since {moment(since_ms)}")
    yield from of_outbox(lanes)
    yield from lanes.checks(of_workers(lanes))


@command("check")
def check(lanes: Context) -> None:
    """Check Redis, its durability, the clocks, the workers and their versions. Code 1: one failed."""
    is_right = True
    for finding in findings(lanes):
        word, colour = _SHOWN[finding.is_right]
        click.echo(f"{click.style(word, fg=colour)} {finding.what}: {visible(finding.sentence)}")
        is_right = is_right and finding.is_right is not False
    if not is_right:
        click.get_current_context().exit(1)


@command("acknowledge-loss")
def acknowledge_loss(lanes: Context) -> None:
    """Acknowledge reported losses of data in Redis, so that `check` passes again."""
    losses = sorted(lanes.store.acknowledge_losses())
    if not losses:
        click.echo("there is no loss to acknowledge")
    for loss in losses:
        click.echo(
            f"acknowledged: {lanes.words.message}s {loss.first:,} to {loss.last:,}, noticed {moment(loss.at_ms)}"
        )
