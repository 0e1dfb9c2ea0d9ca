"""A log line: the ids of its update, JSON whatever was logged, and no token, whichever code writes it."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any
from urllib.parse import quote

import pytest
from redis.exceptions import AuthenticationError

from celery_lanes.errors import complaint
from chatlanes.bot.event_loop import event_loop
from chatlanes.logs import Ids, JsonLines, Secrets, UpdateIds, about
from chatlanes.logs.celery_log import WorkerText
from chatlanes.logs.ids import LineContext, thread_of
from chatlanes.logs.lines import TextLines
from tests.support.bot_api import TOKEN

SECRET = TOKEN.partition(":")[2]
LINES = {
    "text": TextLines(LineContext(), Secrets([TOKEN]), "%(levelname)s %(name)s%(_bot)s: %(message)s"),
    "json": JsonLines(LineContext(), Secrets([TOKEN])),
}


def record(message: object = "said", *arguments: object, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("mybot", logging.WARNING, __file__, 1, message, arguments, None)
    vars(made).update(extra)
    return made


def fields(made: logging.LogRecord, known: LineContext | None = None) -> dict[str, Any]:
    line = JsonLines(known).format(made)
    assert "\n" not in line
    return dict(json.loads(line))


@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
@pytest.mark.parametrize("text", [TOKEN, f"https://host/bot{TOKEN}/getMe", quote(TOKEN, safe="")])
def test_a_token_is_cut_out(lines: logging.Formatter, text: str) -> None:
    # In the arguments, in `extra`, and in a traceback
    made = record("failed (url=%s)", text, url=text)
    try:
        raise ValueError(text)
    except ValueError:
        made.exc_info = sys.exc_info()
    line = lines.format(made)
    assert SECRET not in line
    assert "<token>" in line
    assert "Traceback" in line


def test_an_unknown_token_is_cut_out_of_urls() -> None:
    assert Secrets().cut("https://host/bot12:AAbb/getMe") == "https://host/bot<token>/getMe"


def test_password_in_a_redis_url_is_hidden_and_the_example_is_not() -> None:
    assert Secrets().cut("redis://:password@10.0.0.5:6379/0") == "redis://:<token>@10.0.0.5:6379/0"
    advice = complaint(AuthenticationError("Authentication required."))
    assert Secrets().cut(advice) == advice
    assert "redis://:password@host:port/0" in advice


def test_log_lines_of_a_run_have_its_ids() -> None:
    async def on_the_loop() -> tuple[dict[str, Any], dict[str, Any]]:
        return fields(record()), await asyncio.to_thread(lambda: fields(record()))

    with about(lambda: Ids("12:7", chat=-5, attempt=2)):
        found = [fields(record()), *event_loop().run(on_the_loop())]
        text = LINES["text"].format(record())
    for each in found:
        assert (each["update"], each["bot"], each["chat"], each["attempt"]) == ("12:7", 12, -5, 2)
    assert text == "WARNING mybot: said [update=12:7 chat=-5 attempt=2]"
    assert "update" not in fields(record())


def test_celerys_lines_about_a_task_have_its_ids() -> None:
    # Of an update, of one that runs here, and of a task that is none
    told = record("received", data={"id": "12:7", "args": "(message, chat -5, update 7)"})
    assert fields(told).items() >= {"update": "12:7", "bot": 12, "chat": -5}.items()
    with about(lambda: Ids("12:7", 9, 3)):
        assert fields(record(data={"id": "12:7"})).items() >= {"chat": 9, "attempt": 3}.items()
        assert "attempt" not in fields(record(data={"id": "12:8"}))
    assert fields(record(data={"id": "8f3c", "args": "('secret',)"})).keys() & {"update", "task", "chat"} == {"task"}


def test_each_of_many_bots_is_named() -> None:
    known = LineContext({"shop": 12, "help": 13})
    assert fields(record(threadName=thread_of("help")), known).items() >= {"bot": 13, "bot_name": "help"}.items()
    with about(lambda: Ids("12:7")):
        assert fields(record(), known).items() >= {"bot": 12, "bot_name": "shop"}.items()
    assert LINES["text"].format(record(threadName=thread_of("help"))) == "WARNING mybot [help]: said"


class Unspeakable:
    def __str__(self) -> str:
        raise LookupError("no text")

    __repr__ = __str__


def test_whatever_is_logged_is_one_line_of_json() -> None:
    circle: list[Any] = []
    circle.append(circle)
    odd = {"half": "\ud800", "circle": circle, "odd": Unspeakable(), "update": "taken", "amount": 5}
    with about(lambda: Ids("12:7")):
        found = fields(record("two\nlines %d", "no number", **odd))
    assert found["message"].startswith("two\nlines %d (TypeError")
    assert (found["amount"], found["update"]) == (5, "12:7")
    assert "LookupError" in found["odd"]
    assert found["time"].endswith("Z")


def test_a_custom_log_handler_can_use_the_ids() -> None:
    with about(lambda: Ids("12:7", 9)):
        UpdateIds().filter(made := record())
    assert logging.Formatter("%(update)s %(chat)s %(attempt)s %(message)s").format(made) == "12:7 9 - said"


#: Clears the screen, sets the title of the terminal, begins a line, and turns a text around.
FORGED = "no\n2026-01-01 INFO poller: all is well\x1b[2J\x1b]0;owned\x07\x9b2J\r\u2028\x85\u202e"
UNSAFE = set("\x1b\x07\x9b\r\u2028\x85\u202e")


@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
def test_a_text_of_others_neither_forges_a_line_nor_reaches_the_terminal(lines: logging.Formatter) -> None:
    made = record("failed: %s", FORGED)
    try:
        failed = ValueError(FORGED)
        failed.add_note(FORGED)
        raise failed
    except ValueError:
        made.exc_info = sys.exc_info()
    shown = lines.format(made)
    assert not UNSAFE & set(shown)
    assert not [line for line in shown.splitlines() if line.startswith("2026")]
    assert "\\u001b[2J" in shown
    if isinstance(lines, JsonLines):
        assert json.loads(shown)["message"] == f"failed: {FORGED}"


def test_celerys_colours_stay() -> None:
    lines = WorkerText(LineContext(), Secrets(), "%(levelname)s: %(message)s", use_color=True)
    assert lines.format(record("a \x1b[2J")) == "\x1b[1;33mWARNING: a \\u001b[2J\x1b[0m"
