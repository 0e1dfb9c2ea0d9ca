"""Bots of python-telegram-bot."""
