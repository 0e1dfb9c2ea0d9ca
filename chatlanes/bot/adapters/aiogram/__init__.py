"""Bots of aiogram."""
