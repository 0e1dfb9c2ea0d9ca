"""How the poller logs: one line, one format, to stderr.

Promises that no bot token is in any line, whoever wrote it: `requests`, `urllib3` and tracebacks included.
"""

import logging
from urllib.parse import quote

FORMAT = "%(asctime)s %(levelname)s %(name)s%(bot)s: %(message)s"
#: Of many bots in one process each has threads of this name, with its own behind it.
_BOT = "bot "


def start_logging(*tokens: str, level: int = logging.INFO) -> None:
    """`level`: of the poller's own lines; those of others have it too, but for their debug lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(TokenFreeFormatter(*tokens))
    logging.basicConfig(level=max(level, logging.INFO), handlers=[handler])
    logging.getLogger("poller").setLevel(level)


def thread_of(bot_name: str) -> str:
    """The name of a thread whose lines begin with the bot's."""
    return _BOT + bot_name


class TokenFreeFormatter(logging.Formatter):
    """Cuts the tokens out of the finished text, so that nothing that is put in on the way can hold one."""

    def __init__(self, *tokens: str) -> None:
        super().__init__(FORMAT)
        self._tokens = tokens

    def format(self, record: logging.LogRecord) -> str:
        name = record.threadName or ""
        record.bot = f" [{name.removeprefix(_BOT)}]" if name.startswith(_BOT) else ""
        line = super().format(record)
        for token in self._tokens:
            line = without_token(line, token)
        return line


def without_token(text: str, token: str) -> str:
    """Also as it stands in a URL."""
    for secret in (token, quote(token), quote(token, safe="")):
        text = text.replace(secret, "<token>")
    return text
