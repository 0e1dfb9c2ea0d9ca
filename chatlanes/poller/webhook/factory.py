"""Builds a receiver from settings.

Guarantees one sentence for a missing setting that a receiver needs. Reads neither the environment nor arguments: the
command line does.
"""

from ipaddress import ip_network
from urllib.parse import unquote, urlsplit

from redis.exceptions import RedisError
from starlette.types import ASGIApp

from chatlanes.poller.webhook.app import Hook, application
from chatlanes.poller.webhook.intake import HookIntake
from chatlanes.poller.webhook.validation import RequestValidator
from chatlanes.settings import Settings, SettingsError
from chatlanes.settings.webhook_secret import secret_from
from chatlanes.updates.connection import connect_to

#: For /readyz: a proxy asks often, and a receiver whose Redis is slower than that is not ready.
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


def hook_of(bot: Settings) -> Hook:
    """Raises SettingsError."""
    networks = tuple(map(ip_network, bot.webhook_networks or ()))
    return Hook(bot.bot_name, path_of(bot), RequestValidator(secret_of(bot).encode(), networks), HookIntake(bot))


def path_of(bot: Settings) -> str:
    """Raises SettingsError."""
    path = unquote(urlsplit(url_of(bot)).path) or "/"
    if "{" in path or "}" in path:
        raise SettingsError("WEBHOOK_URL: its path must have no { and no }")
    if path in ("/healthz", "/readyz"):
        raise SettingsError(f"WEBHOOK_URL: {path} is the receiver's own, give the webhook another path")
    return path


def url_of(bot: Settings) -> str:
    """Of many bots, each has its name behind WEBHOOK_URL. Raises SettingsError."""
    if bot.webhook_url is None:
        raise SettingsError(
            "WEBHOOK_URL is not set: give the public address that Telegram shall send to, such as "
            "https://bot.example.org/telegram"
        )
    return f"{bot.webhook_url}/{bot.bot_name}" if bot.bot_name else bot.webhook_url


def secret_of(bot: Settings) -> str:
    """WEBHOOK_SECRET, or one that follows from the token. Raises SettingsError."""
    if bot.webhook_secret is not None:
        return bot.webhook_secret.get_secret_value()
    return secret_from(bot.token)
