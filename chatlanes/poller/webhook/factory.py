"""Builds a receiver from settings.

Guarantees one sentence for a missing setting that a receiver needs. Reads neither the environment nor arguments.
"""

from ipaddress import ip_network
from urllib.parse import unquote, urlsplit

from redis.exceptions import RedisError
from starlette.types import ASGIApp, Receive, Scope, Send

from chatlanes.poller.factory import check
from chatlanes.poller.webhook.app import Hook, application
from chatlanes.poller.webhook.intake import HookIntake
from chatlanes.poller.webhook.validation import RequestValidator
from chatlanes.settings import Settings, SettingsError
from chatlanes.settings.webhook_secret import secret_from
from chatlanes.updates.connection import connect_to

#: For /readyz, which proxies call often. A receiver whose Redis answers more slowly is not ready.
READY_WITHIN_S = 1.0


def receiver_of(settings: Settings) -> tuple[ASGIApp, list[Hook]]:
    """The app, and its hooks, one for each bot. Raises SettingsError."""
    hooks = [hook_of(bot) for bot in settings.served]
    client = connect_to(settings, READY_WITHIN_S)

    def is_ready() -> bool:
        try:
            return bool(client.ping())
        except (RedisError, OSError):
            return False

    return application(hooks, is_ready), hooks


def webhook(app: ASGIApp, settings: Settings) -> ASGIApp:
    """An ASGI app that receives updates, and passes all other requests to `app`: the webhook in a web server of yours.

    It answers POST requests to the path of WEBHOOK_URL as `chatlanes webhook` does. For Starlette and FastAPI it is a
    middleware: `app.add_middleware(webhook, settings=load())`. Raises SettingsError, OrderByError, CollectError,
    FilterError.
    """
    for bot in settings.served:
        check(bot)
    hooks = {hook.path: hook for hook in map(hook_of, settings.served)}

    async def with_webhook(scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        await (hooks.get(scope["path"], app) if is_post else app)(scope, receive, send)

    return with_webhook


def hook_of(bot: Settings) -> Hook:
    """Raises SettingsError."""
    networks = tuple(map(ip_network, bot.webhook_networks or ()))
    return Hook(bot.bot_name, path_of(bot), RequestValidator(secret_of(bot).encode(), networks), HookIntake(bot))


def path_of(bot: Settings) -> str:
    """Raises SettingsError."""
    path = unquote(urlsplit(url_of(bot)).path) or "/"
    if "{" in path or "}" in path:
        raise SettingsError("WEBHOOK_URL: the path must not contain { or }")
    if path in ("/healthz", "/readyz"):
        raise SettingsError(f"WEBHOOK_URL: the receiver uses {path} itself; give the webhook another path")
    return path


def url_of(bot: Settings) -> str:
    """WEBHOOK_URL; if there are several bots, with the name of the bot appended. Raises SettingsError."""
    if bot.webhook_url is None:
        raise SettingsError(
            "WEBHOOK_URL is not set: set the public address to which Telegram sends updates, such as "
            "https://bot.example.org/telegram"
        )
    return f"{bot.webhook_url}/{bot.bot_name}" if bot.bot_name else bot.webhook_url


def secret_of(bot: Settings) -> str:
    """WEBHOOK_SECRET, or a secret that is derived from the token. Raises SettingsError."""
    if bot.webhook_secret is not None:
        return bot.webhook_secret.get_secret_value()
    return secret_from(bot.token)
