"""The bot of these tests. It records the start and end of each update, executes the orders in its text and answers it.

The history has the order of events over all processes: each line is appended to one file with a single write. A text
consists of orders such as `gate:a` (wait until the test opens gate a) or `fails:2`, and of `#<n>`, the answer.
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

from celery_lanes import Delivery
from chatlanes.bot import Bot
from chatlanes.bot.context import Context
from chatlanes.settings import secret_from
from tests.support import history

#: Environment variables: the file of the history, the folder of the gates, and this worker's name in the history.
HISTORY, GATES, WORKER = "PIPELINE_HISTORY", "PIPELINE_GATES", "PIPELINE_WORKER"

not_callable = "a text"


def handle(ctx: Context) -> None:
    """Record the start, execute the orders, answer, record the end."""
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
    """The same, on the event loop. The answer is sent, but not awaited."""
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


def raise_system_exit(ctx: Context, attempt: str) -> None:
    if ctx.attempt <= int(attempt):
        sys.exit(f"attempt {ctx.attempt}")


def raise_keyboard_interrupt(ctx: Context, attempt: str) -> None:
    """Raise the exception of Ctrl-C, without a signal."""
    if ctx.attempt <= int(attempt):
        raise KeyboardInterrupt(f"attempt {ctx.attempt}")


class OddError(Exception):
    """An error that cannot be printed, pickled or recreated from its arguments."""

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
    """An error that is never retried."""


def refuse(ctx: Context, why: str) -> None:
    raise BotRefusedError(why)


def sleep(ctx: Context, attempt: str) -> None:
    """In the first attempts, wait until the gate `wake` is open."""
    while ctx.attempt <= int(attempt) and not Path(os.environ[GATES], "wake").exists():
        time.sleep(0.005)


def work(_: Context, ms: str) -> None:
    time.sleep(int(ms) / 1000)


def ignore_interrupts(ctx: Context, attempt: str) -> None:
    """As sleep, but suppress every interruption."""
    while ctx.attempt <= int(attempt) and not Path(os.environ[GATES], "wake").exists():
        with suppress(BaseException):
            sleep(ctx, attempt)


def note_threads(_: Context, file: str) -> None:
    """Write the number of threads of this process to a file."""
    Path(os.environ[GATES], file).write_text(str(active_count()))


def count_up(ctx: Context, _: str) -> None:
    ctx.session["n"] = ctx.session.get("n", 0) + 1


def count_slowly(ctx: Context, gate: str) -> None:
    """Read the counter, signal that, wait, write it: two concurrent handlers would lose one increment."""
    before = ctx.session.get("n", 0)
    Path(os.environ[GATES], f"{gate}.read").touch()
    wait_at(ctx, gate)
    ctx.session["n"] = before + 1


def die_after_commit(ctx: Context, _: str) -> None:
    """Kill this process right after the commit of this update, before the worker's main process learns of it."""

    def kill_process(_: Delivery, *, delayed: bool = False) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    assert hasattr(Delivery, "_report_ended")
    Delivery._report_ended = kill_process  # type: ignore[method-assign]


def send_to(ctx: Context, chat: str) -> None:
    ctx.call("sendMessage", chat_id=int(chat), text=f"from {ctx.chat_id}")


def send_chat_action(ctx: Context, action: str) -> None:
    ctx.typing(action)


def try_chat_action(ctx: Context, action: str) -> None:
    """Send a chat action and suppress every error, as some bots do."""
    with suppress(BaseException):
        ctx.typing(action)


def log(ctx: Context, what: str) -> None:
    """Log with the bot's logger, from another thread, with print, and after the bot has emptied its update."""
    logger = logging.getLogger("mybot")
    logger.info("handled %s", what, extra={"amount": 5})
    thread = Thread(target=copy_context().run, args=(logger.info, "in a thread %s", what))
    thread.start()
    thread.join()
    print("printed", what)
    update = dict(ctx.update)
    ctx.update.clear()
    logger.info("emptied %s", what)
    ctx.update.update(update)


def log_token(ctx: Context, _: str) -> None:
    """Log the token, as careless libraries do."""
    url = f"https://example.org/bot{os.environ['BOT_TOKEN']}/getMe"
    logging.getLogger("mybot").warning("at %s", url, extra={"url": url})


def span(ctx: Context, _: str) -> None:
    """Record a span of the bot, inside of the update's trace."""
    from opentelemetry import trace

    with trace.get_tracer("mybot").start_as_current_span("the bot's own"):
        pass


def raise_with_token(ctx: Context, attempt: str) -> None:
    """Raise an error that contains the token, as careless libraries do."""
    if ctx.attempt <= int(attempt):
        raise OSError(f"https://example.org/bot{os.environ['BOT_TOKEN']}/getMe")


def reach_own_redis(_: Context, trouble: str) -> None:
    """Connect to a Redis of the bot: nothing listens there, or a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1] if trouble == "timeout" else 1
        Redis(port=port, socket_timeout=0.1, retry=None).ping()


def raise_with_secrets(_: Context, where: str) -> None:
    """Raise an error with every secret that a worker knows: in its text, in a note, or in the error that caused it."""
    token, redis_url, hook_secret = os.environ["BOT_TOKEN"], os.environ["REDIS_URL"], os.environ["WEBHOOK_SECRET"]
    secrets = f"{token} {redis_url} {unquote(redis_url)} {hook_secret} {secret_from(token)}"
    error = RuntimeError("harmless" if where in ("cause", "note") else secrets)
    if where == "note":
        error.add_note(secrets)
    raise error from (ValueError(secrets) if where == "cause" else None)


def raise_huge(_: Context, how: str) -> None:
    """Raise an error with a huge text, cause, group or chain."""
    text = "long " * 4_000_000  # 20 MB
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
    "own_redis": reach_own_redis,
    "raises_secrets": raise_with_secrets,
    "raises_huge": raise_huge,
    "recurses": recurse,
    "raises_token": raise_with_token,
    "threads": note_threads,
    "spans": span,
    "logs": log,
    "logs_token": log_token,
    "says": lambda ctx, text: ctx.reply(text),
    "sends": send_to,
    "chat_action": send_chat_action,
    "tries_chat_action": try_chat_action,
    "counts": count_up,
    "counts_at": count_slowly,
    "dies_after_commit": die_after_commit,
    "gate": wait_at,
    "fails": fail_until,
    "exits": raise_system_exit,
    "interrupts": raise_keyboard_interrupt,
    "fails_oddly": fail_oddly,
    "refuses": refuse,
    "sleeps": sleep,
    "takes": work,
    "ignores_interrupts": ignore_interrupts,
}


def on_error(ctx: Context, error: Exception) -> None:
    record(f"error:{type(error).__name__}", ctx)
    raise LookupError("the hook itself fails")


def on_timeout(ctx: Context) -> None:
    record("timeout", ctx)
    raise LookupError("the hook itself fails")


coroutines = Bot(handle_async, on_error=on_error_async)
bot = Bot(handle, never_retry=(BotRefusedError,), on_error=on_error, on_timeout=on_timeout)


def on_blocked(ctx: Context) -> None:
    ctx.session["gone"] = True


def greet(ctx: Context) -> None:
    """The function of a broadcast: chats above 100 are wrong, in the first attempts or in all of them."""
    ctx.session["greeted"] = ctx.session.get("greeted", 0) + 1
    if ctx.chat_id and ctx.chat_id > 100 and (ctx.attempt == 1 or ctx.chat_id > 200):
        raise ValueError(f"chat {ctx.chat_id}")
    ctx.call("sendMessage", chat_id=ctx.chat_id, text="hi")


def greet_and_type(ctx: Context) -> None:
    ctx.call("sendMessage", chat_id=ctx.chat_id, text="hi")
    ctx.call("sendChatAction", chat_id=ctx.chat_id, action="typing")


def greet_at_second(ctx: Context) -> None:
    """Fails in its first attempt: for chats above 100 before its call, for others after it."""
    if ctx.attempt == 1 and (ctx.chat_id or 0) > 100:
        raise ValueError("before the call")
    ctx.call("sendMessage", chat_id=ctx.chat_id, text="hi")
    if ctx.attempt == 1:
        raise ValueError("after the call")


def greet_or_die(ctx: Context) -> None:
    """Kills its process for chats above 100 until the gate is open."""
    if (ctx.chat_id or 0) > 100 and not Path(os.environ[GATES], "gate").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    ctx.call("sendMessage", chat_id=ctx.chat_id, text="hi")


def start_broadcast(ctx: Context) -> None:
    if "broadcasts:" not in ctx.text:
        handle(ctx)
        return
    ctx.broadcast("sessions", "sendMessage", text="hi")
    killed = Path(os.environ[GATES], "killed")
    if "killed" in ctx.text and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if ctx.attempt == 1:
        raise RuntimeError("after the broadcast")


starting = Bot(start_broadcast)
broadcasting = Bot(handle, on_blocked=on_blocked)


def record(what: str, ctx: Context) -> None:
    event = history.Event(what, ctx.update_id, ctx.attempt, os.getpid(), os.environ[WORKER])
    history.record(os.environ[HISTORY], event)
