"""A bot that would answer in another one's name."""

from telebot import TeleBot

bot = TeleBot("654321:AAanother-token_of-somebody_else-000")
