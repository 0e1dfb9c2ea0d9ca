"""python -m bench.apps.aiogram_polling: aiogram polling as in its documentation, with the handler that waits."""

from __future__ import annotations

import os

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer

from bench.apps.wait_and_compute import CONCURRENCY, wait_async


def main() -> None:
    session = AiohttpSession(api=TelegramAPIServer.from_base(os.environ["BOT_API_URL"]))
    dispatcher, bot = Dispatcher(), Bot(os.environ["BOT_TOKEN"], session)
    dispatcher.message.register(wait_async)
    dispatcher.run_polling(bot, handle_as_tasks=True, tasks_concurrency_limit=int(os.environ[CONCURRENCY]))


if __name__ == "__main__":
    main()
