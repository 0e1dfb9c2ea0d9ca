"""The bot of these tests: writes down when it starts and ends each update, answers it, and does what its text says.

Promises a history in the order in which things happened, over all processes: each line is one write at the end of one
file. A text holds `#<n>`, which is answered, and orders such as `gate:a` (wait until the test opens a) or `fails:2`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import socket
import sys
import time
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from threading import Lock, Thread, active_count
from urllib.parse import unquote

from redis import Redis

from chatlanes.bot import Bot
from chatlanes.bot.context import Context
from chatlanes.lanes import Delivery
from chatlanes.poller.webhook.validation import secret_from
from tests.support import history

#: Where the history is written, where the gates are, and what this worker is called in the history.
HISTORY, GATES, WORKER = "PIPELINE_HISTORY", "PIPELINE_GATES", "PIPELINE_WORKER"

not_callable = "a text"


def handle(ctx: Context) -> None:
    """Start, do as told, answer, end."""
    record("start", ctx)
    message = ctx.update.get("message", {})
    try:
        for order, value in re.findall(r"(\w+):(\w+)", message.get("text", "")):
            ORDERS[order](ctx, value)
        answer(ctx, message.get("text", ""))
    except BaseException:
        record("raise", ctx)
        raise
    record("end", ctx)


async def handle_async(ctx: Context) -> None:
    """The same, on the event loop. Its answer is awaited by nobody."""
    record("start", ctx)
    try:
        for order, value in re.findall(r"(\w+):(\w+)", ctx.text):
            if order == "gate":
                while not Path(os.environ[GATES], value).exists():
                    await asyncio.sleep(0.05)
            else:
                ORDERS[order](ctx, value)
        await asyncio.sleep(0)
        answer(ctx, ctx.text or "#-")
    except BaseException:
        record("raise", ctx)
        raise
    record("end", ctx)


async def on_error_async(ctx: Context, error: Exception) -> None:
    Path(os.environ[GATES], f"error.{ctx.attempt}.{ctx.update_id}").touch()


def answer(ctx: Context, text: str) -> None:
    if number := re.search(r"#\d+", text):
        ctx.reply(number[0])


def wait_at(ctx: Context, gate: str) -> None:
    while not Path(os.environ[GATES], gate).exists():
        time.sleep(0.005)


def fail_until(ctx: Context, attempt: str) -> None:
    if ctx.attempt <= int(attempt):
        raise RuntimeError(f"attempt {ctx.attempt} of {ctx.update_id}")


def leave(ctx: Context, attempt: str) -> None:
    if ctx.attempt <= int(attempt):
        sys.exit(f"attempt {ctx.attempt}")


def interrupt(ctx: Context, attempt: str) -> None:
    """As Ctrl-C would, but nobody has pressed it."""
    if ctx.attempt <= int(attempt):
        raise KeyboardInterrupt(f"attempt {ctx.attempt}")


class OddError(Exception):
    """Cannot be told, shown, pickled or made again from its arguments."""

    def __init__(self, what: str, attempt: int) -> None:
        super().__init__(what)
        self.lock = Lock()
        self.attempt = attempt

    def __str__(self) -> str:
        raise LookupError("no text")

    __repr__ = __str__


def fail_oddly(ctx: Context, attempt: str) -> None:
    if ctx.attempt <= int(attempt):
        raise OddError("odd", ctx.attempt)


class BotRefusedError(Exception):
    """Is never retried."""


def refuse(ctx: Context, why: str) -> None:
    raise BotRefusedError(why)


def sleep(ctx: Context, attempt: str) -> None:
    """Until the gate `wake` is open, in the first attempts."""
    while ctx.attempt <= int(attempt) and not Path(os.environ[GATES], "wake").exists():
        time.sleep(0.005)


def work(_: Context, ms: str) -> None:
    time.sleep(int(ms) / 1000)


def be_deaf(ctx: Context, attempt: str) -> None:
    """As sleep, and no interruption helps."""
    while ctx.attempt <= int(attempt) and not Path(os.environ[GATES], "wake").exists():
        with suppress(BaseException):
            sleep(ctx, attempt)


def note_threads(_: Context, file: str) -> None:
    """How many this process has."""
    Path(os.environ[GATES], file).write_text(str(active_count()))


def count_up(ctx: Context, _: str) -> None:
    ctx.session["n"] = ctx.session.get("n", 0) + 1


def count_slowly(ctx: Context, gate: str) -> None:
    """Read, say so, wait, write: what two handlers that run at the same time would both do."""
    before = ctx.session.get("n", 0)
    Path(os.environ[GATES], f"{gate}.read").touch()
    wait_at(ctx, gate)
    ctx.session["n"] = before + 1


def vanish(ctx: Context, _: str) -> None:
    """This process is killed right after the commit of this update, before anybody hears of it."""

    def be_killed(_: Delivery) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    Delivery._gone = be_killed  # type: ignore[method-assign]


def send_to(ctx: Context, chat: str) -> None:
    ctx.call("sendMessage", chat_id=int(chat), text=f"from {ctx.chat_id}")


def act(ctx: Context, action: str) -> None:
    ctx.typing(action)


def act_without_a_word(ctx: Context, action: str) -> None:
    """As a bot does that is too careful."""
    with suppress(BaseException):
        ctx.typing(action)


def log(ctx: Context, what: str) -> None:
    """By a logger of the bot's own, also beside the handler's thread, without one, and without its update."""
    logger = logging.getLogger("mybot")
    logger.info("handled %s", what, extra={"amount": 5})
    beside = Thread(target=copy_context().run, args=(logger.info, "beside %s", what))
    beside.start()
    beside.join()
    print(f"printed {what}")
    update = dict(ctx.update)
    ctx.update.clear()
    logger.info("emptied %s", what)
    ctx.update.update(update)


def log_token(ctx: Context, _: str) -> None:
    """As careless libraries do."""
    url = f"https://example.org/bot{os.environ['BOT_TOKEN']}/getMe"
    logging.getLogger("mybot").warning("at %s", url, extra={"url": url})


def span(ctx: Context, _: str) -> None:
    """As a bot does that has traces of its own."""
    from opentelemetry import trace

    with trace.get_tracer("mybot").start_as_current_span("the bot's own"):
        pass


def spill(ctx: Context, attempt: str) -> None:
    """As careless libraries fail."""
    if ctx.attempt <= int(attempt):
        raise OSError(f"https://example.org/bot{os.environ['BOT_TOKEN']}/getMe")


def reach_own_redis(_: Context, trouble: str) -> None:
    """The bot's own Redis: one that nobody runs, or one that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1] if trouble == "timeout" else 1
        Redis(port=port, socket_timeout=0.1, retry=None).ping()


def blurt(_: Context, where: str) -> None:
    """Fails with every secret that a worker knows, in its text, its arguments, a note, or the error that caused it."""
    token, redis_url, hook_secret = os.environ["BOT_TOKEN"], os.environ["REDIS_URL"], os.environ["WEBHOOK_SECRET"]
    told = f"{token} {redis_url} {unquote(redis_url)} {hook_secret} {secret_from(token)}"
    error = RuntimeError("blurted" if where in ("cause", "note") else told)
    if where == "note":
        error.add_note(told)
    raise error from (ValueError(told) if where == "cause" else None)


def roar(_: Context, how: str) -> None:
    """Fails with far too much to tell."""
    text = "roar " * 4_000_000  # 20 MB
    error: Exception = RuntimeError(text)
    if how == "cause":
        raise RuntimeError("short") from error
    if how == "group":
        raise ExceptionGroup("many", [ValueError(text[:1000])] * 10_000)
    if how == "chain":
        for _ in range(2_000):
            error, error.__cause__ = RuntimeError(text[:10_000]), error
    if how == "hidden":
        error = type("Hidden", (OSError,), {"__str__": lambda _: "short"})(1, text)
    raise error


def recurse(ctx: Context, how: str) -> None:
    recurse_again(ctx, how)


def recurse_again(ctx: Context, how: str) -> None:
    recurse(ctx, how)


ORDERS = {
    "away": reach_own_redis,
    "blurts": blurt,
    "roars": roar,
    "recurses": recurse,
    "spills": spill,
    "threads": note_threads,
    "spans": span,
    "logs": log,
    "leaks": log_token,
    "says": lambda ctx, text: ctx.reply(text),
    "sends": send_to,
    "acts": act,
    "swallows": act_without_a_word,
    "counts": count_up,
    "counts_at": count_slowly,
    "vanishes": vanish,
    "gate": wait_at,
    "fails": fail_until,
    "exits": leave,
    "interrupts": interrupt,
    "oddly": fail_oddly,
    "refuses": refuse,
    "sleeps": sleep,
    "takes": work,
    "deaf": be_deaf,
}


def on_error(ctx: Context, error: Exception) -> None:
    record(f"error:{type(error).__name__}", ctx)
    raise LookupError("the hook itself fails")


def on_timeout(ctx: Context) -> None:
    record("timeout", ctx)
    raise LookupError("the hook itself fails")


coroutines = Bot(handle_async, on_error=on_error_async)
bot = Bot(handle, never_retry=(BotRefusedError,), on_error=on_error, on_timeout=on_timeout)


def record(what: str, ctx: Context) -> None:
    event = history.Event(what, ctx.update_id, ctx.attempt, os.getpid(), os.environ[WORKER])
    history.record(os.environ[HISTORY], event)
