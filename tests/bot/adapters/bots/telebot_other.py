"""A bot with another token than the deployment's."""

from telebot import TeleBot

bot = TeleBot("654321:AAanother-token_of-somebody_else-000")
