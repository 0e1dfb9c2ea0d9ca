"""Bots of frameworks, as handlers of added bots."""

from aiogram import Bot as AiogramBot
from aiogram import Dispatcher
from telebot import TeleBot
from telegram.ext import Application

from chatlanes.bot import Bot

TOKEN = "123456:SECRET-of_the_frameworks_bots"

telebot = TeleBot(TOKEN, threaded=False)
with_hooks = Bot(telebot, on_error=lambda ctx, error: None)
application = Application.builder().token(TOKEN).updater(None).build()
dispatcher = Dispatcher()
pair = (dispatcher, AiogramBot(TOKEN))


def make_dispatcher() -> Dispatcher:
    return Dispatcher()
