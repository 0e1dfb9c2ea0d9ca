"""Bots of pyTelegramBotAPI."""
