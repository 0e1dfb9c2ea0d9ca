"""Adds and removes bots while the deployment runs: every process serves the change within 5 s, without a restart.

    import chatlanes.bots

    chatlanes.bots.add("123456:AA…", bot="tenants:handle")
    chatlanes.bots.list()
    chatlanes.bots.remove(123456)

Needs BOTS_KEY, REDIS_URL and the other settings of the deployment, and waits for Redis and Telegram: call it with
`asyncio.to_thread` in coroutines. A token is stored only sealed, and no result or error contains it.
"""

from __future__ import annotations

import logging
from contextlib import closing, suppress
from typing import NamedTuple

from celery_lanes.protocol import Store, keys
from chatlanes.bot.adapters import tokens_in
from chatlanes.broadcasts import Feeder
from chatlanes.poller.bot_api import Telegram, TelegramTroubleError, TokenRefusedError
from chatlanes.settings import Settings, checks, load
from chatlanes.settings.bots import AddedBot
from chatlanes.settings.imports import ImportPathError, import_object
from chatlanes.updates.added_bots import BotRecord, NotOpenedError, Registry, now_ms, read_record

__all__ = ["AddError", "Added", "add", "list", "remove", "rotate"]

log = logging.getLogger(__name__)

ANSWER_WITHIN_S = 10.0
#: The handlers of added bots.
FORMS = "Name a handler without a token with --bot: a function, such as `def handle(ctx)`, or an aiogram Dispatcher"


class AddError(Exception):
    """The bot was not added or removed. One sentence that says what to do."""


class Added(NamedTuple):
    """An added bot. `added_ms`: when `add` was called last, in ms of Unix time. `is_new`: False in the result of `add`
    if it was added before, with the same token and `bot`.
    """

    id: int
    username: str
    bot: str
    added_ms: int
    is_new: bool = True


def add(token: str, bot: str | None = None, *, settings: Settings | None = None) -> Added:
    """Add a bot to the deployment. It has the deployment's settings, and the handler `bot` (by default that of BOT).

    If it was added before, its token and `bot` are replaced, so a handler that runs again may call this again. With
    WEBHOOK_URL its webhook is set at Telegram.

    Args:
        token: From @BotFather, or from `getManagedBotToken`.
        bot: The import path `module:attribute` of its handler: a function or coroutine function, a `chatlanes.Bot` of
            one, an aiogram Dispatcher, or a function without parameters that makes one of these.
        settings: Those of the deployment; by default from the environment and `.env`.

    Raises:
        AddError: The token is malformed, Telegram refuses it or does not answer, `bot` cannot be imported or was
            created with another token, or BOT_TOKEN or BOTS has this bot. Nothing was stored.
        SettingsError: A setting is wrong or missing, such as BOTS_KEY.
        redis.exceptions.RedisError: Redis does not answer.
    """
    settings = settings or load()
    token = token.strip()
    bot_id, path = _checked_token(token), bot or settings.bot
    check_handler(path, token)
    with closing(Registry.connect(settings)) as registry:
        if bot_id in registry.configured:
            raise AddError(f"bot {bot_id} is served already, by BOT_TOKEN or BOTS: remove it there before it is added")
        known = _known(registry, bot_id, registry.stored(bot_id))
        username = _asked(AddedBot.of(settings, token, path))
        record = BotRecord(registry.seals.seal(token), path, username, now_ms())
        # If the process dies before this, Telegram may have the webhook, and a second call adds the bot.
        registry.put(bot_id, record)
    is_new = known is None or (known.token, known.bot) != (token, path)
    return Added(bot_id, username, path, record.added_ms, is_new)


def remove(bot: int | str, *, drop: bool = False, settings: Settings | None = None) -> bool:
    """Remove an added bot: polling ends, its webhook is deleted, and none of its updates is run. Returns False, and
    stores nothing, if it was not added; with `drop`, if it was removed and nothing waits for it.

    Args:
        bot: Its id, or its token.
        drop: Its waiting updates are settled unrun, and so are its timers when they are due, unless it is added again
            before. Its broadcasts are cancelled. By default all of them are kept, and continue when the bot is added
            again. Those of a bot that BOT_TOKEN or BOTS has too are kept in any case.
        settings: Those of the deployment; by default from the environment and `.env`.

    Raises:
        AddError: `bot` is neither an id nor a token.
        SettingsError: A setting is wrong or missing, such as BOTS_KEY.
        redis.exceptions.RedisError: Redis does not answer.
    """
    settings = settings or load()
    digits = str(bot).partition(":")[0]
    if not digits.isdecimal():
        raise AddError("name the bot by its id, the digits of its token")
    bot_id = int(digits)
    with closing(Registry.connect(settings)) as registry:
        stored, is_configured = registry.stored(bot_id), bot_id in registry.configured
        known, drop = _known(registry, bot_id, stored), drop and not is_configured
        is_there = stored is not None and (known is not None or not _is_removed(bot_id, stored))
        with closing(Store(registry.client)) as store:
            feeder = Feeder(store, removed := AddedBot.removed(settings, bot_id))
            if not is_there and not (drop and _has_waiting(store, feeder, removed)):
                return False
            registry.remove(bot_id, drop=drop)
            if drop:  # if the process dies before this, their next feeders cancel them
                feeder.cancel_all()
    if is_there and settings.webhook_url and not is_configured:
        _delete_webhook(bot_id, known)
    return True


def list(*, settings: Settings | None = None) -> tuple[Added, ...]:  # noqa: A001 - named as the command
    """The added bots, by their ids. Raises AddError for a record of a newer release, SettingsError and
    redis.exceptions.RedisError.
    """
    settings = settings or load()
    with closing(Registry.connect(settings)) as registry:
        records = _records(registry)
    return tuple(Added(bot_id, each.username, each.bot, each.added_ms) for bot_id, each in records.items())


def rotate(*, settings: Settings | None = None) -> int:
    """Seal every token with the first key of BOTS_KEY, so that the other keys can be deleted. Returns their number.

    Raises:
        AddError: A token was sealed with a key that BOTS_KEY has not. The others are sealed.
        SettingsError: A setting is wrong or missing.
        redis.exceptions.RedisError: Redis does not answer.
    """
    settings = settings or load()
    problems = []
    with closing(Registry.connect(settings)) as registry:
        records = _records(registry)
        for bot_id in records:
            try:
                registry.seal_again(bot_id)
            except NotOpenedError as error:
                problems.append(str(error))
    if problems:
        raise AddError("\n".join(problems))
    return len(records)


def _checked_token(token: str) -> int:
    """The bot's id."""
    try:
        return int(checks.bot_token(token).partition(":")[0])
    except ValueError:
        problem = "the token (its value is secret and not shown) is not <digits>:<letters>, as @BotFather gives it"
    raise AddError(problem)  # outside of the except block: its error might show the token


def check_handler(path: str, token: str) -> None:
    """Raises AddError unless the handler at `path` can be imported and can serve an added bot. Calls no factory."""
    try:
        checks.bot_path(path)
    except ValueError:
        raise AddError(f"bot={checks.shown(path)}: allowed is module:attribute, such as mybot:handle") from None
    if path.endswith(".py"):
        raise AddError(f"bot={checks.shown(path)}: a script polls with a token of its own. {FORMS}")
    try:
        found = import_object("bot", path)
    except ImportPathError as error:
        raise AddError(str(error)) from error.__cause__
    if any(own != token for own in tokens_in(found)):
        raise AddError(f"bot={path}: it was created with another token than that of this bot. {FORMS}")


def _records(registry: Registry) -> dict[int, BotRecord]:
    try:
        return registry.records()
    except NotOpenedError as error:
        raise AddError(str(error)) from None


def _known(registry: Registry, bot_id: int, stored: bytes | None) -> AddedBot | None:
    """None: it is not stored, was removed, or its token cannot be opened."""
    try:
        return None if stored is None else registry.settings_of(bot_id, stored)
    except NotOpenedError:
        return None


def _is_removed(bot_id: int, stored: bytes) -> bool:
    try:
        return read_record(bot_id, stored).is_removed
    except NotOpenedError:
        return False


def _has_waiting(store: Store, feeder: Feeder, bot: AddedBot) -> bool:
    """True if updates, timers or broadcasts of the bot wait. Scans those of all bots, in small steps."""
    updates = store.client.zscan_iter(keys.pending(bot.queue_group), f"{bot.bot_id}:*", count=1000)
    running = (each for each in feeder.broadcasts.all() if not each.ended_ms)
    return any(True for _ in updates) or any(True for _ in running) or bool(store.timer_owners(f"{bot.bot_id}/"))


def _asked(bot: AddedBot) -> str:
    """The username of the bot, whose webhook is then set if there is a WEBHOOK_URL."""
    with closing(Telegram(bot.bot_api_url, bot.token, answer_within_s=ANSWER_WITHIN_S)) as telegram:
        try:
            username = telegram.username()
            if bot.webhook_url:
                from chatlanes.poller.webhook.app import webhook_of  # a deployment that polls does not import it

                telegram.call("setWebhook", webhook_of(bot))
            return username
        except TokenRefusedError:
            problem = (
                f"Telegram refuses the token of bot {bot.bot_id}: take the current one from @BotFather, or from "
                "getManagedBotToken"
            )
        except TelegramTroubleError as error:
            problem = f"Telegram: {error}; nothing was added: try again"
    raise AddError(problem)


def _delete_webhook(bot_id: int, bot: AddedBot | None) -> None:
    """A token that Telegram refuses has no webhook."""
    problem: object = "BOTS_KEY does not open its token"
    if bot is not None:
        with closing(Telegram(bot.bot_api_url, bot.token, answer_within_s=ANSWER_WITHIN_S)) as telegram:
            try:
                with suppress(TokenRefusedError):
                    telegram.call("deleteWebhook")
                return
            except TelegramTroubleError as error:
                problem = error
    log.warning(
        "the webhook of bot %d may still be set, because %s: call deleteWebhook with its token", bot_id, problem
    )
