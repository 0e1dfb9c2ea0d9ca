"""`chatlanes webhook`: the receiver, and the commands that set, show and delete the webhook at Telegram.

Guarantees one sentence for each missing setting. Also starts while Redis does not answer: updates are answered with 503
until it does.
"""

import argparse
import logging
import socket
import sys
from collections.abc import Callable

from redis.exceptions import RedisError

from chatlanes.poller.bot_api import Telegram
from chatlanes.poller.factory import check
from chatlanes.poller.responses import TelegramTroubleError, TokenRefusedError
from chatlanes.poller.runtime import Stop
from chatlanes.poller.webhook.factory import path_of, receiver_of, secret_of, url_of
from chatlanes.poller.webhook.intake import connected
from chatlanes.poller.webhook.processes import ReceiverProcesses, inherited, receiver_command
from chatlanes.poller.webhook.serving import CannotListenError, describe, listener, serve
from chatlanes.poller.webhook.webhook_info import describe_webhook
from chatlanes.settings import Settings, SettingsError
from chatlanes.updates.deployments import present

log = logging.getLogger("poller")

#: The limit of Telegram's setWebhook.
MOST_CONNECTIONS = 100


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", common: argparse.ArgumentParser) -> None:
    """The command and its sub-commands."""
    webhook = commands.add_parser(
        "webhook",
        prog="chatlanes webhook",
        help="run an HTTP server to which Telegram sends updates",
        parents=[common],
    )
    webhook.add_argument("--workers", type=_count, default=1, metavar="N", help="processes (default: %(default)s)")
    webhook.add_argument("--socket", type=int, help=argparse.SUPPRESS)  # for a worker process: its listening socket
    webhook.set_defaults(run=receive)
    about = webhook.add_subparsers(title="commands that manage the webhook", metavar="COMMAND")
    setting = about.add_parser("set", help="tell Telegram to send updates to WEBHOOK_URL", parents=[common])
    setting.add_argument(
        "--max-connections", type=_connections, metavar="N", help="concurrent requests, 1 to 100 (default: 40)"
    )
    _add_options(setting, drops=True)
    setting.set_defaults(run=set_webhook)
    info = about.add_parser("info", help="show the webhook as Telegram reports it", parents=[common])
    _add_options(info)
    info.set_defaults(run=show_webhook)
    deleting = about.add_parser("delete", help="delete the webhook, so that polling works again", parents=[common])
    _add_options(deleting, drops=True)
    deleting.set_defaults(run=delete_webhook)


def receive(settings: Settings, stop: Stop, given: argparse.Namespace) -> int:
    """Raises OrderByError and CollectError."""
    try:
        if given.socket is not None:
            return _serve(settings, stop, inherited(given.socket, stop))
        return _begin(settings, stop, given)
    except SettingsError as error:
        log.error("%s", error)
        return 2
    except CannotListenError as error:
        log.error("%s", error)
        return 1


def _begin(settings: Settings, stop: Stop, given: argparse.Namespace) -> int:
    """Raises SettingsError, CannotListenError, OrderByError, CollectError, FilterError, ServerUnfit."""
    for bot in settings.served:
        check(bot)
    paths = [path_of(bot) for bot in settings.served]
    with (
        listener(settings.webhook_host, settings.webhook_port) as listening,
        present("receiver", settings, stop.sleep),
    ):
        _check_redis(settings.served[0])
        log.info("receiving on %s at %s", describe(listening), ", ".join(paths))
        if given.workers == 1:
            return _serve(settings, stop, listening)
        code = ReceiverProcesses(given.workers, receiver_command(given.verbose, given.quiet), listening, stop).run()
    log.info("stopped")
    return code


def _check_redis(settings: Settings) -> None:
    """Raises ServerUnfit."""
    try:
        connected(settings).close()
    except (RedisError, OSError) as error:
        log.warning("Redis does not answer: %s. Updates are answered with 503 until it does", error)


def _serve(settings: Settings, stop: Stop, listening: socket.socket) -> int:
    app, hooks = receiver_of(settings)
    serve(app, listening, list(settings.webhook_trusted_proxies), stop, [hook.intake.give_up for hook in hooks])
    for hook in hooks:
        hook.intake.progress.log(None)
    log.info("stopped")
    return 0


# -- commands to Telegram


def set_webhook(settings: Settings, stop: Stop, given: argparse.Namespace) -> int:
    def wanted(bot: Settings) -> dict[str, object]:
        options: dict[str, object] = {
            "max_connections": given.max_connections,
            "allowed_updates": bot.allowed_updates,
        }
        return {
            "url": url_of(bot),
            "secret_token": secret_of(bot),
            "drop_pending_updates": given.drop_pending,
            **{name: value for name, value in options.items() if value is not None},
        }

    return _call_telegram(settings, stop, given, "setWebhook", wanted)


def delete_webhook(settings: Settings, stop: Stop, given: argparse.Namespace) -> int:
    return _call_telegram(
        settings, stop, given, "deleteWebhook", lambda bot: {"drop_pending_updates": given.drop_pending}
    )


def show_webhook(settings: Settings, stop: Stop, given: argparse.Namespace) -> int:
    return _call_telegram(settings, stop, given)


def _call_telegram(
    settings: Settings,
    stop: Stop,
    given: argparse.Namespace,
    method: str = "",
    wanted: Callable[[Settings], dict[str, object]] = lambda bot: {},
) -> int:
    """For each bot, calls the method, if any, and shows the resulting webhook. Raises Stopping."""
    chosen = [bot for bot in settings.served if given.bot in (None, bot.bot_name)]
    if not chosen:
        return _fail(f"--bot {given.bot}: BOTS names {', '.join(bot.bot_name for bot in settings.served)}", 2)
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
            _print(f"{prefix}the server accepted {method}, but its getWebhookInfo failed: {error}")
            return 0
        return _fail(f"{prefix}{error}" if isinstance(error, TokenRefusedError) else f"{prefix}Telegram: {error}", 1)
    finally:
        telegram.close()
    for line in describe_webhook(info, our_url):
        _print(prefix + line)
    return 0


def _print(text: str) -> None:
    print(text)  # noqa: T201 - the output of the command


def _fail(why: str, code: int) -> int:
    print(why, file=sys.stderr)  # noqa: T201 - one sentence, no log line
    return code


def _add_options(parser: argparse.ArgumentParser, *, drops: bool = False) -> None:
    parser.add_argument("--bot", metavar="NAME", help="a bot in BOTS (default: all)")
    if drops:
        parser.add_argument("--drop-pending", action="store_true", help="delete the updates pending at Telegram")


def _count(text: str) -> int:
    return _whole(text, 64)


def _connections(text: str) -> int:
    return _whole(text, MOST_CONNECTIONS)


def _whole(text: str, most: int) -> int:
    if not text.isdigit() or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"give a whole number from 1 to {most}")
    return int(text)
