"""`BOT=mybot.py`: a file that is run as a script, until it polls."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import pytest

from chatlanes.bot.loader import load_bot
from chatlanes.settings.imports import ImportPathError
from tests.bot.adapters.test_matrix import texts
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import TOKEN, chats_of, message, one_chat_each

HEAD = """import argparse, asyncio, time
from beside import GREETING
def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--token", required=True)
    return parser.parse_args()
"""
TELEBOT = """from telebot import TeleBot
if __name__ == "__main__":
    bot = TeleBot(parsed().token)
    @bot.message_handler(func=lambda _: True)
    def answer(message):
        bot.reply_to(message, GREETING)
    while True:
        try:
            bot.polling(none_stop=True)
        except:
            time.sleep(0.01)
        finally:
            GREETING = "the program has ended"
"""
#: Each with an `if __name__ == "__main__"`, and the command line of its own.
SCRIPTS = {
    "telebot_loop.py": TELEBOT,
    "green.py": TELEBOT,
    "async_telebot.py": """from telebot.async_telebot import AsyncTeleBot
if __name__ == "__main__":
    bot = AsyncTeleBot(parsed().token)
    @bot.message_handler(func=lambda _: True)
    async def answer(message):
        await bot.reply_to(message, GREETING)
    while True:
        try:
            asyncio.run(bot.infinity_polling())
        except:
            time.sleep(0.01)
""",
    "aiogram_main.py": """from aiogram import Bot, Dispatcher
async def main():
    loop = asyncio.get_running_loop()
    dp = Dispatcher()
    @dp.message()
    async def answer(message):
        assert asyncio.get_running_loop() is loop
        await message.answer(GREETING)
    try:
        await dp.start_polling(Bot(parsed().token))
    finally:
        open("cleaned up", "w").close()
if __name__ == "__main__":
    asyncio.run(main())
""",
    "ptb_main.py": """from telegram.ext import Application, MessageHandler, filters
async def answer(update, context):
    await update.message.reply_text(GREETING)
def main():
    application = Application.builder().token(parsed().token).build()
    application.add_handler(MessageHandler(filters.TEXT, answer))
    application.run_polling(allowed_updates=["message"])
    print("not reached")
if __name__ == "__main__":
    main()
""",
}
POOLS = {"telebot_loop.py": ("prefork", 2), "green.py": ("gevent", 4), "aiogram_main.py": ("prefork", 1)}


def test_scripts_run_as_they_are(make_pipeline: MakePipeline) -> None:
    # Given scripts that poll, in a folder of their own with a module that they import
    pipeline = make_pipeline(QUEUES=len(SCRIPTS), BOT_ARGS=f"--token {TOKEN}")
    folder = pipeline.directory / "shop"
    folder.mkdir()
    (folder / "beside.py").write_text("GREETING = 'hello'\n")
    for name, code in SCRIPTS.items():
        (folder / name).write_text(HEAD + code)
    pipeline.poller()
    workers = pipeline.start_workers([(f"shop/{name}", *POOLS.get(name, ("threads", 4))) for name in SCRIPTS])
    chats = one_chat_each(workers)
    # When each gets an update
    pipeline.push(*(message(0, chat, do="hi") for chat in chats))
    pipeline.drained()
    # Then what each polls with has answered
    assert [(name, texts(pipeline, chat)) for name, chat in zip(SCRIPTS, chats, strict=True)] == [
        (name, ["hello"]) for name in SCRIPTS
    ]
    for worker in workers:
        worker.ask_to_stop()
    assert [worker.exit_code() for worker in workers] == [0] * len(workers)
    assert (pipeline.directory / "cleaned up").exists()
    assert all("never awaited" not in worker.log for worker in workers)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    return tmp_path


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (None, "there is no file "),
        ("def handle(ctx): pass", "ended without polling; name what handles its updates: mybot:handle."),
        ("import telepathy", "running mybot.py failed, because it needs the module telepathy"),
        ("1 / 0", "running mybot.py failed with ZeroDivisionError; fix the module"),
        (
            "import sys\nsys.exit(3)",
            "BOT=mybot.py ended itself with SystemExit(3); its command line is the setting BOT_ARGS.",
        ),
        (HEAD.replace("from beside", "#") + "parsed()", "SystemExit(2); its command line is the setting BOT_ARGS."),
    ],
)
def test_script_without_a_bot_is_refused(here: Path, code: str | None, sentence: str) -> None:
    if code is not None:
        Path("mybot.py").write_text(code)
    with pytest.raises(ImportPathError) as refused:
        load_bot("mybot.py")
    assert sentence in str(refused.value)


def test_main_that_polls_again_after_any_error_is_taken(here: Path) -> None:
    (here / "loops.py").write_text(
        'import time\nfrom telebot import TeleBot\nbot = TeleBot("1:none")\nends = []\n'
        "def main():\n while True:\n  try: bot.polling()\n  except: time.sleep(0.01)\n  finally: ends.append(1)\n"
    )
    assert load_bot("loops:main")
    assert not sys.modules["loops"].ends


def test_import_has_the_command_line_of_the_bot(here: Path) -> None:
    Path("parses.py").write_text("import sys\nseen = sys.argv\ndef handle(ctx): pass\n")
    before = sys.argv
    load_bot("parses:handle", arguments="--config 'a b'")
    assert sys.modules["parses"].seen == ["parses", "--config", "a b"]
    assert sys.argv is before


POLLING_TELEBOT = """from telebot import TeleBot
bot = TeleBot("1:none")
while True:
    try:
        bot.{}
    except Exception:
        pass
"""
MODULES = {
    "infinity_polling": POLLING_TELEBOT.format("infinity_polling(skip_pending=True)"),
    "run_webhooks": POLLING_TELEBOT.format("run_webhooks(port=8443)"),
    "polling": """import asyncio
from telebot.async_telebot import AsyncTeleBot
bot = AsyncTeleBot("1:none")

asyncio.run(bot.polling())
""",
    "start_polling": """import asyncio
from aiogram import Bot, Dispatcher
bot = Dispatcher()
async def main():
    await bot.start_polling(Bot("1:none"))
asyncio.run(main())
""",
    "run_polling": """from telegram.ext import Application
bot = Application.builder().token("1:none").build()


bot.run_polling()
""",
}


@pytest.mark.parametrize(
    "call", [pytest.param(name, marks=pytest.mark.slow if name == "start_polling" else ()) for name in MODULES]
)
def test_polling_at_import_is_refused_with_its_line(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    name = f"polls_by_{call}"
    Path(f"{name}.py").write_text(MODULES[call])
    with pytest.raises(ImportPathError) as refused:
        load_bot(f"{name}:bot")
    place = f"{call} in {tmp_path / name}.py, line 5"
    assert f"BOT={name}:bot: its module starts polling while it is imported ({place})" in str(refused.value)
    assert 'put that line under `if __name__ == "__main__":`' in str(refused.value)


MODULE = "tests.bot.adapters.bots.main:"
#: Chats of each worker.
CHATS = 8
#: The chat that main() writes to.
OWNER = 999
#: Their main() sends a message before polling, and cleans up after it.
MAINS = ("main", "telebot_main", "ptb_main")


@pytest.mark.first_only
@pytest.mark.parametrize("name", [*MAINS, "factory", "plain_factory"])
def test_async_main(make_pipeline: MakePipeline, name: str) -> None:
    pools = {"prefork": 2, "threads": 8}
    pipeline = make_pipeline(QUEUES=len(pools))
    pipeline.poller()
    workers = pipeline.start_workers([(f"{MODULE}{name}", pool, slots) for pool, slots in pools.items()])
    chats = [chat for place in range(len(pools)) for chat in islice(chats_of(place, len(pools)), CHATS)]
    pipeline.push(*(message(0, chat, do="hello") for chat in chats))
    pipeline.drained()
    for worker in workers:
        worker.ask_to_stop()
    assert [worker.exit_code() for worker in workers] == [0, 0]
    assert {chat: texts(pipeline, chat) for chat in chats} == {chat: ["answer hello"] for chat in chats}
    # main() runs in each process: up to its polling at the start, and the rest at the end; its calls reach our server
    processes = pools["prefork"] + 1
    expected = processes if name in MAINS else 0
    assert texts(pipeline, OWNER) == ["started"] * expected
    assert len(pipeline.simulator.calls("setMyCommands")) == expected
    assert len(set(noted(pipeline, "closed"))) == len(noted(pipeline, "closed")) == expected
    assert len(set(noted(pipeline, "startup"))) == (expected if name == "main" else 0)
    # Calls that change how updates arrive are not sent
    assert pipeline.simulator.calls("deleteWebhook") == []


def test_calls_of_a_plain_main_reach_the_server(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=f"{MODULE}plain_main")
    pipeline.poller()
    pipeline.worker("threads", 2)
    pipeline.push(message(0, 7, do="hello"))
    pipeline.drained()
    assert texts(pipeline, 7) == ["answer hello"]
    assert texts(pipeline, OWNER) == ["started"]


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("name", "why"), [("broken", "RuntimeError: no database"), ("returns_nothing", "returned None and did not poll")]
)
def test_failing_async_main_ends_the_worker(make_pipeline: MakePipeline, name: str, why: str) -> None:
    pipeline = make_pipeline(BOT=f"{MODULE}{name}")
    for worker in [pipeline.worker(pool, 1, is_awaited=False) for pool in ("prefork", "threads")]:
        assert worker.exit_code() == 1
        assert why in worker.log


def noted(pipeline, what):
    file = pipeline.directory / what
    return file.read_text().split() if file.exists() else []
