"""A module that polls during its import is refused, so that no worker waits for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chatlanes.bot.loader import load_bot
from chatlanes.settings.imports import BotImportError

TELEBOT = """from telebot import TeleBot
bot = TeleBot("1:none")
while True:
    try:
        bot.{}
    except Exception:
        pass
"""
MODULES = {
    "infinity_polling": TELEBOT.format("infinity_polling(skip_pending=True)"),
    "run_webhooks": TELEBOT.format("run_webhooks(port=8443)"),
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


@pytest.mark.parametrize("call", MODULES)
def test_polling_at_import_is_refused_with_its_line(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    name = f"polls_by_{call}"
    Path(f"{name}.py").write_text(MODULES[call])
    with pytest.raises(BotImportError) as refused:
        load_bot(f"{name}:bot")
    place = f"{call} in {tmp_path / name}.py, line 5"
    assert f"BOT={name}:bot: its module starts polling while it is imported ({place})" in str(refused.value)
    assert 'put that line under `if __name__ == "__main__":`' in str(refused.value)
