"""How the poller logs: one line, one format, to stderr.

Promises that the bot token is in no line, whoever wrote it: `requests`, `urllib3` and tracebacks included.
"""

import logging
from urllib.parse import quote

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def start_logging(token: str, *, verbose: bool = False) -> None:
    """`verbose`: the poller's own debug lines too."""
    handler = logging.StreamHandler()
    handler.setFormatter(TokenFreeFormatter(token))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("poller").setLevel(logging.DEBUG if verbose else logging.INFO)


class TokenFreeFormatter(logging.Formatter):
    """Cuts the token out of the finished text, so that nothing that is put in on the way can hold it."""

    def __init__(self, token: str) -> None:
        super().__init__(FORMAT)
        self._token = token

    def format(self, record: logging.LogRecord) -> str:
        return without_token(super().format(record), self._token)


def without_token(text: str, token: str) -> str:
    """Also as it stands in a URL."""
    for secret in (token, quote(token), quote(token, safe="")):
        text = text.replace(secret, "<token>")
    return text
