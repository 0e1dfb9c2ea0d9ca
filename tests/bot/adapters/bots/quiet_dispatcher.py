"""A Dispatcher without handlers."""

from aiogram import Dispatcher

dp = Dispatcher()
