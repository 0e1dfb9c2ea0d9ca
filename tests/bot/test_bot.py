"""Bot: accepted arguments, and errors raised where it is created."""

import re

import pytest

from chatlanes.bot import Bot
from chatlanes.bot.context import Context
from chatlanes.bot.loader import load_bot
from chatlanes.settings.imports import ImportPathError


def handle(ctx):
    return ctx.update_id


def takes_two(ctx, error):
    return ctx, error


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"handle": None}, "handle=None cannot be called; write a function, as `def handle(ctx)`"),
        ({"handle": takes_two}, "handle cannot be called with one argument; write a function, as `def handle(ctx)`"),
        ({"never_retry": (ValueError, "KeyError")}, "write a tuple of exception classes, as (ValueError,)"),
        ({"never_retry": (int,)}, "write a tuple of exception classes"),
        ({"never_retry": (SystemExit,)}, "write a tuple of exception classes"),
        ({"never_retry": (ValueError(),)}, "write a tuple of exception classes"),
        ({"never_retry": ValueError}, "write a tuple of exception classes"),
        ({"on_error": 7}, "on_error=7 cannot be called; write a function, as `def on_error(ctx, error)`"),
        ({"on_error": handle}, "on_error cannot be called with 2 arguments"),
        ({"on_timeout": takes_two}, "on_timeout cannot be called with one argument"),
    ],
)
def test_invalid_arguments_are_refused(given, sentence):
    with pytest.raises(TypeError, match=re.escape(sentence)):
        Bot(**{"handle": handle, **given})


def test_handler_is_required():
    with pytest.raises(TypeError, match="handle"):
        Bot()


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Returns a function that loads `bot` from source."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def load(name: str, source: str) -> Bot:
        (tmp_path / f"{name}.py").write_text(f"from chatlanes.bot import Bot\n{source}")
        return load_bot(f"{name}:bot")

    return load


def test_bot_is_loaded_with_its_hooks(load):
    bot = load(
        "bot_whole",
        "async def handle(ctx): return ctx.update_id\n"
        "async def on_error(ctx, error): return str(error)\n"
        "bot = Bot(handle, (KeyError,), on_error=on_error, on_timeout=lambda ctx: 'late')",
    )
    ctx = Context({"update_id": 5}, None)
    assert (bot(ctx), bot.on_error(ctx, ValueError("no")), bot.on_timeout(ctx)) == (5, "no", "late")
    assert bot.never_retry == (KeyError,)


def test_plain_function_is_a_bot_without_hooks(load):
    bot = load("bot_function", "def bot(ctx): return ctx.update_id")
    assert (bot.never_retry, bot.on_error, bot.on_timeout) == ((), None, None)


def test_invalid_bot_is_refused_at_import(load):
    with pytest.raises(ImportPathError, match="importing bot_bad failed with TypeError") as caught:
        load("bot_bad", "bot = Bot(None)")
    assert "handle=None cannot be called" in str(caught.value.__cause__)
