"""Loading the bot: accepted objects, and the errors for all others."""

import os
import subprocess
import sys
import traceback

import pytest

from chatlanes.bot.context import Context
from chatlanes.bot.loader import load_bot
from chatlanes.settings import imports
from chatlanes.settings.imports import ImportPathError
from tests.support import ROOT


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a module into the current directory, which is not on the import path yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])

    def write(name: str, source: str) -> None:
        (tmp_path / f"{name}.py").write_text(source)

    return write


def handled(path: str) -> object:
    return load_bot(path)(Context({"update_id": 5}, None))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "attribute", "source"),
    [
        ("bot_plain", "handle", "def handle(ctx): return ctx.update_id"),
        (
            "bot_async",
            "handle",
            "async def handle(ctx): return ctx.update_id",
        ),
        ("bot_method", "bot.handle", "class Bot:\n def handle(self, ctx): return ctx.update_id\nbot = Bot()"),
        ("bot_object", "bot", "class Bot:\n def __call__(self, ctx): return ctx.update_id\nbot = Bot()"),
        (
            "bot_async_object",
            "bot",
            "class Bot:\n async def __call__(self, ctx, extra=1): return ctx.update_id\nbot = Bot()",
        ),
        ("bot_optional", "handle", "def handle(ctx, *more, option=None): return ctx.update_id"),
    ],
)
def test_bot_is_found_in_the_current_directory(write, name, attribute, source):
    write(name, source)
    assert handled(f"{name}:{attribute}") == 5


def test_its_code_finds_the_variables_of_the_env_file(write, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", {**os.environ, "SET": "outside"})
    (tmp_path / ".env").write_text("BOT_TOKEN=1:abc\nSET=inside\n")
    write("bot_of_env", "import os\nfound = os.environ['BOT_TOKEN'], os.environ['SET']\ndef handle(ctx): return found")
    assert handled("bot_of_env:handle") == ("1:abc", "outside")


def test_builtin_function_is_accepted():
    assert load_bot("builtins:repr").handle is repr


@pytest.mark.parametrize(
    ("name", "source", "attribute", "complaint"),
    [
        ("bot_none", "", "handle", "bot_none has no handle; write a name that it defines"),
        ("bot_number", "handle = 7", "handle", "names a value of type int, which cannot be called; name a function"),
        (
            "bot_bare",
            "def handle(): pass",
            "handle",
            r"handle\(\) returned None: return the bot, or write a handler",
        ),
        ("bot_maker", "def main(): 1 / 0", "main", r"main\(\) failed with ZeroDivisionError"),
        ("bot_made", "def main(): return 7", "main", "names a value of type int"),
        (
            "bot_starts",
            "import telebot\nwhile True:\n try: telebot.TeleBot('1:x').infinity_polling()\n except Exception: pass",
            "bot",
            "its module starts polling while it is imported",
        ),
        ("bot_many", "def handle(a, b): pass", "handle", "cannot be called with one argument"),
        (
            "bot_class",
            "class Shop:\n def __init__(self, ctx): pass",
            "Shop",
            "BOT=bot_class:Shop is a class; name an object of it, or write a handler as `def handle",
        ),
        ("bot_hook", "from chatlanes import Bot\ndef handle(): return Bot(int)", "handle", "failed with TypeError"),
    ],
)
def test_object_that_cannot_handle_updates_is_refused(write, name, source, attribute, complaint):
    write(name, source)
    with pytest.raises(ImportPathError, match=complaint):
        load_bot(f"{name}:{attribute}")


@pytest.mark.parametrize("module", ["no_such_bot", "no.such.bot", "tasks.no_such_bot"])
def test_missing_module_is_named_with_its_search_path(write, module):
    with pytest.raises(ImportPathError) as caught:
        load_bot(f"{module}:handle")
    assert str(caught.value).startswith(f"BOT={module}:handle: there is no module {module} in {os.getcwd()}")


@pytest.mark.parametrize("path", ["examples.echo", "examples.echo:", ":handle", ""])
def test_invalid_import_path_is_refused(path):
    with pytest.raises(ImportPathError, match="is not an import path: write module:attribute"):
        load_bot(path)


@pytest.mark.parametrize(
    ("name", "source", "sentence", "line"),
    [
        ("bot_broken", "x = 1\ny = x / 0", "failed with ZeroDivisionError; fix the module", "y = x / 0"),
        ("bot_needy", "import missing_thing", "it needs the module missing_thing", "import missing_thing"),
        ("bot_typo", "def handle(ctx:", "failed with SyntaxError", "def handle(ctx:"),
    ],
)
def test_error_inside_the_module_keeps_its_traceback(write, name, source, sentence, line):
    write(name, source)
    with pytest.raises(ImportPathError, match=sentence) as caught:
        load_bot(f"{name}:handle")
    assert line in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(("module", "package"), [("telegram", "python-telegram-bot"), ("telebot", "pyTelegramBotAPI")])
def test_the_package_of_a_missing_framework_is_named(write, monkeypatch, module, package):
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "site-packages" not in path])
    write(f"bot_{module}", f"import {module}")
    with pytest.raises(ImportPathError, match=f"needs the module {module}, .*; install the package {package} or fix"):
        load_bot(f"bot_{module}:bot")


@pytest.mark.slow
def test_async_bot_is_refused_with_gevent(write):
    write("bot_green", "async def handle(ctx): pass")
    code = """
from gevent import monkey
monkey.patch_all()
from chatlanes.bot.loader import load_bot
from chatlanes.settings.imports import ImportPathError
try:
    load_bot("bot_green:handle")
except ImportPathError as error:
    print(error)
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert "start the worker with -P prefork or -P threads" in done.stdout


def test_long_import_is_reported(write, monkeypatch):
    printed = []
    monkeypatch.setattr(imports, "LONG_IMPORT_S", 0.0)
    monkeypatch.setattr(imports, "print", lambda text, **_: printed.append(text), raising=False)
    monkeypatch.setattr(sys, "printed", printed, raising=False)
    write("bot_polls", "import sys, time\nwhile not sys.printed: time.sleep(0.01)\ndef handle(ctx): pass")
    load_bot("bot_polls:handle")
    assert printed[0].startswith(
        "BOT=bot_polls:handle: importing bot_polls is not done after 0 s. If it starts polling"
    )
