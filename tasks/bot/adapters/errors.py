"""What is wrong with a framework's bot, in one sentence."""

from __future__ import annotations

from tasks.bot.client import BotApi
from tasks.imports import BotImportError


def check_token(token: str, api: BotApi, said: str) -> None:
    """Raises BotImportError for a bot that would answer in another one's name. Without a token of ours any will do."""
    if not (api.has_token("") or api.has_token(token)):
        raise BotImportError(
            f"{said} was made with another token than BOT_TOKEN: give both the same, as in "
            'TeleBot(os.environ["BOT_TOKEN"]).'
        )
