"""No log line holds the token, whoever writes it."""

import logging
from urllib.parse import quote

import pytest

from poller.log import TokenFreeFormatter
from tests.poller.bot_api import TOKEN

SECRET = TOKEN.partition(":")[2]


@pytest.mark.parametrize("text", [TOKEN, f"https://host/bot{TOKEN}/getMe", quote(TOKEN, safe="")])
def test_a_line_of_another_library_is_cut(text: str) -> None:
    record = logging.LogRecord("urllib3", logging.WARNING, __file__, 1, "failed (url=%s)", (text,), None)
    line = TokenFreeFormatter(TOKEN).format(record)
    assert SECRET not in line
    assert "<token>" in line


def test_a_traceback_is_cut() -> None:
    try:
        raise ValueError(f"/bot{TOKEN}/getUpdates")
    except ValueError as error:
        told = (type(error), error, error.__traceback__)
    record = logging.LogRecord("poller", logging.ERROR, __file__, 1, "unexpected", (), told)
    line = TokenFreeFormatter(TOKEN).format(record)
    assert SECRET not in line
    assert "Traceback" in line
