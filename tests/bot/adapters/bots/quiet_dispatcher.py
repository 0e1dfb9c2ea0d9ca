"""A Dispatcher that calls nobody."""

from aiogram import Dispatcher

dp = Dispatcher()
