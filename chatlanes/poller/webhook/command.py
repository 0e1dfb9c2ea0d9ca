"""`chatlanes webhook`: the receiver, and the commands that set, show and delete the webhook at Telegram.

Guarantees one sentence for each missing setting. Also starts while Redis does not answer: updates are answered with 503
until it does. `info` has a line for each problem, which says what to do.
"""

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from threading import Thread
from typing import Any

import click
from redis.exceptions import RedisError

from celery_lanes.errors import complaint
from chatlanes.logs.foreign_text import one_line
from chatlanes.poller.bot_api import Telegram, TelegramTroubleError, TokenRefusedError
from chatlanes.poller.factory import check, intake_of
from chatlanes.poller.program import given_log_options, log_options, run
from chatlanes.poller.runtime import Stop, Stopping
from chatlanes.poller.webhook.app import path_of, receiver_of, url_of, webhook_of
from chatlanes.poller.webhook.intake import REDIS_ANSWERS_WITHIN_S
from chatlanes.poller.webhook.serving import CannotListenError, describe, listener, serve
from chatlanes.settings import Settings, SettingsError
from chatlanes.settings.bots import AddedBot
from chatlanes.updates.added_bots import served_now
from chatlanes.updates.deployments import present

log = logging.getLogger("poller")

#: Of `webhook info`: two addresses fit.
LONGEST_ROW = 5_000

CHECK_EVERY_S = 0.2
#: A process that dies at its start must not keep the machine busy with restarts.
RESTART_AFTER_S = 1.0
#: Longer than a process takes to answer the requests in progress.
STOP_WITHIN_S = 10.0
#: Exit codes after which a restart would fail too.
FINAL = (1, 2)


@log_options
@click.group(invoke_without_command=True, subcommand_metavar="[COMMAND]")
@click.option(
    "--workers", type=click.IntRange(1, 64), metavar="N", default=1, show_default=True, help="Processes to start."
)
@click.option("--socket", "descriptor", type=int, hidden=True)  # for one of these processes: its listening socket
@click.pass_context
def webhook(ctx: click.Context, workers: int, descriptor: int | None) -> None:
    """Receive updates by webhook, and append them to the lanes.

    An HTTP server for the address WEBHOOK_URL, which `webhook set` gives to Telegram. Needs BOT_TOKEN (or BOTS) and
    REDIS_URL too. These and all other settings come from the environment, or from the file .env in this folder;
    `chatlanes settings` describes them. BOT is not imported here: the workers run it.
    """
    if ctx.invoked_subcommand is None:
        run(partial(receive, workers=workers, descriptor=descriptor), traced="receiver")


_bot = click.option("--bot", metavar="NAME", help="A bot in BOTS, or the id of an added one. Default: all bots.")
_drop_pending = click.option("--drop-pending", is_flag=True, help="Delete the updates that wait at Telegram.")


@log_options
@webhook.command("set")
@click.option(
    "--max-connections", type=click.IntRange(1, 100), metavar="N", help="Concurrent requests, 1 to 100. Default: 40."
)
@_bot
@_drop_pending
def set_webhook(bot: str | None, drop_pending: bool, max_connections: int | None) -> None:
    """Tell Telegram to send updates to WEBHOOK_URL."""

    def wanted(settings: Settings) -> dict[str, object]:
        most = {} if max_connections is None else {"max_connections": max_connections}
        return {**webhook_of(settings), "drop_pending_updates": drop_pending, **most}

    run(partial(_call_telegram, bot_name=bot, method="setWebhook", wanted=wanted))


@log_options
@webhook.command("info")
@_bot
def show_webhook(bot: str | None) -> None:
    """Show the webhook as Telegram reports it."""
    run(partial(_call_telegram, bot_name=bot))


@log_options
@webhook.command("delete")
@_bot
@_drop_pending
def delete_webhook(bot: str | None, drop_pending: bool) -> None:
    """Delete the webhook, so that polling works again."""
    options: dict[str, object] = {"drop_pending_updates": drop_pending}
    run(partial(_call_telegram, bot_name=bot, method="deleteWebhook", wanted=lambda _: options))


# -- the receiver


def receive(settings: Settings, stop: Stop, *, workers: int, descriptor: int | None) -> int:
    """Raises ImportPathError."""
    try:
        if descriptor is not None:
            return _serve(settings, stop, inherited(descriptor, stop))
        return _begin(settings, stop, workers)
    except SettingsError as error:
        log.error("%s", error)
        return 2
    except CannotListenError as error:
        log.error("%s", error)
        return 1


def _begin(settings: Settings, stop: Stop, workers: int) -> int:
    """Raises SettingsError, CannotListenError, ImportPathError, ServerUnfit."""
    for bot in settings.served:
        check(bot)
    paths = [path_of(bot) for bot in settings.served]
    if settings.bots_key is not None:
        added = AddedBot.of(settings, "1:unused", settings.bot)
        check(added)
        paths.append(path_of(added).removesuffix(added.bot_name) + "<id of an added bot>")
    with (
        listener(settings.webhook_host, settings.webhook_port) as listening,
        present("receiver", settings, stop.run),
    ):
        stop.run(lambda: _check_redis(next(iter(settings.served), AddedBot.of(settings, "1:unused", settings.bot))))
        log.info("receiving on %s at %s", describe(listening), ", ".join(paths))
        if workers == 1:
            return _serve(settings, stop, listening)
        code = ReceiverProcesses(workers, given_log_options(), listening, stop).run()
    log.info("stopped")
    return code


def _check_redis(settings: Settings) -> None:
    """Raises ServerUnfit."""
    try:
        intake_of(settings, REDIS_ANSWERS_WITHIN_S).close()
    except (RedisError, OSError) as error:
        log.warning("Redis does not answer: %s. Updates are answered with 503 until it does", error)


def _serve(settings: Settings, stop: Stop, listening: socket.socket) -> int:
    app, hooks = receiver_of(settings)
    serve(app, listening, list(settings.webhook_trusted_proxies), stop, [hooks.give_up])
    for hook in hooks:
        hook.intake.progress.log(None)
    log.info("stopped")
    return 0


# -- several processes


class ReceiverProcesses:
    """Several processes of the receiver on one listening socket, each started with these `options` and --socket.

    Guarantees that a process that dies is replaced, that all end after the stop request, and that none outlives this
    process: each has one end of a pipe whose other end only this process has.
    """

    def __init__(self, count: int, options: Sequence[str], listening: socket.socket, stop: Stop) -> None:
        self._count = count
        program = [sys.executable, "-m", "chatlanes.poller", "webhook"]
        self._command = [*program, *options, f"--socket={listening.fileno()}"]
        self._listening = listening
        self._stop = stop
        self._processes: list[subprocess.Popen[bytes]] = []

    def run(self) -> int:
        """Runs until the stop request, or until a process ends with a FINAL code. Returns the exit code."""
        try:
            self._processes = [self._start() for _ in range(self._count)]
            return self._supervise()
        except Stopping:
            return 0
        finally:
            self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, pass_fds=[self._listening.fileno()], stdin=subprocess.PIPE)

    def _supervise(self) -> int:
        """Raises Stopping."""
        while True:
            self._stop.sleep(CHECK_EVERY_S)
            for place, process in enumerate(self._processes):
                code = process.poll()
                if code in FINAL:
                    return int(code)
                if code is not None:
                    log.warning("a receiver process exited with %d: starting another one", code)
                    self._stop.sleep(RESTART_AFTER_S)
                    _close_pipe(process)
                    self._processes[place] = self._start()

    def _end(self) -> None:
        """Sends SIGTERM and closes the pipe: each of them stops a process, in case the other one does not."""
        for process in self._processes:
            process.terminate()
            _close_pipe(process)
        give_up_at_s = time.monotonic() + STOP_WITHIN_S
        for process in self._processes:
            try:
                process.wait(max(give_up_at_s - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                log.warning("a receiver process did not stop in time and was killed; Telegram sends its updates again")
                process.kill()
                process.wait()


def inherited(descriptor: int, stop: Stop) -> socket.socket:
    """In a process of `ReceiverProcesses`: the socket. Requests the stop when the parent process has ended."""
    Thread(target=_stop_with_parent, args=(stop,), name="parent", daemon=True).start()
    return socket.socket(fileno=descriptor)


def _stop_with_parent(stop: Stop) -> None:
    while os.read(0, 1):
        pass
    stop.request()


def _close_pipe(process: subprocess.Popen[bytes]) -> None:
    if process.stdin:
        process.stdin.close()


# -- commands to Telegram


def _call_telegram(
    settings: Settings,
    stop: Stop,
    *,
    bot_name: str | None,
    method: str = "",
    wanted: Callable[[Settings], dict[str, object]] = lambda _: {},
) -> int:
    """For each bot, calls the method, if any, and shows the resulting webhook. Raises Stopping."""
    try:
        served = (*settings.served, *served_now(settings))
    except RedisError as error:
        return _fail(f"Redis does not answer: {complaint(error)}. Its added bots are not known", 1)
    chosen = [bot for bot in served if bot_name in (None, bot.bot_name)]
    if not chosen and bot_name is None:
        return _fail("no bot is served: set BOT_TOKEN or BOTS, or add one with `chatlanes lanes bots add`", 2)
    if not chosen:
        return _fail(f"--bot {bot_name}: BOTS names {', '.join(bot.bot_name for bot in served)}", 2)
    codes = [_call_for(bot, stop, method, wanted) for bot in chosen]
    return max(codes)


def _call_for(bot: Settings, stop: Stop, method: str, wanted: Callable[[Settings], dict[str, object]]) -> int:
    """Raises Stopping."""
    prefix = f"{bot.bot_name}: " if bot.bot_name else ""
    telegram = Telegram(bot.bot_api_url, bot.token)
    is_done = False
    try:
        our_url = url_of(bot) if bot.webhook_url else None
        if method:
            options = wanted(bot)
            stop.run(lambda: telegram.call(method, options))
            is_done = True
        info = stop.run(lambda: telegram.object("getWebhookInfo"))
    except SettingsError as error:
        return _fail(f"{prefix}{error}", 2)
    except (TelegramTroubleError, TokenRefusedError) as error:
        if is_done:  # the token is valid: the server has no getWebhookInfo
            click.echo(f"{prefix}the server accepted {method}, but its getWebhookInfo failed: {error}")
            return 0
        return _fail(f"{prefix}{error}" if isinstance(error, TokenRefusedError) else f"{prefix}Telegram: {error}", 1)
    finally:
        telegram.close()
    for line in _describe(info, our_url):
        click.echo(prefix + line)
    return 0


def _describe(info: dict[str, Any], our_url: str | None) -> list[str]:
    """The lines for `info`, a result of getWebhookInfo."""
    return [f"{name}: {one_line(value, LONGEST_ROW)}" for name, value in _rows(info, our_url)]


def _rows(info: dict[str, Any], our_url: str | None) -> list[tuple[str, str]]:
    waiting = str(info.get("pending_update_count", 0))
    if not info.get("url"):
        return [
            ("webhook", "none; `chatlanes poller` gets the updates, `chatlanes webhook set` sets a webhook"),
            ("updates pending at Telegram", waiting),
        ]
    rows = [("webhook", str(info["url"]))]
    if our_url is not None and info["url"] != our_url:
        rows.append(("WEBHOOK_URL differs", f"{our_url} (`chatlanes webhook set` sets it at Telegram)"))
    rows.append(("updates pending at Telegram", waiting))
    rows.append(("concurrent requests", str(info.get("max_connections", 40))))
    kinds = info.get("allowed_updates")
    rows.append(
        ("kinds of update", ", ".join(map(str, kinds)) if kinds and type(kinds) is list else "Telegram's default")
    )
    if info.get("last_error_message"):
        rows.append(("last failure", f"{one_line(info['last_error_message'])}, {_when(info.get('last_error_date'))}"))
    return rows


def _when(seconds: Any) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (TypeError, ValueError, OverflowError, OSError):
        return "at an unknown time"


def _fail(why: str, code: int) -> int:
    click.echo(why, err=True)
    return code
