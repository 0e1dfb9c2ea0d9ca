"""A page that replaces Telegram in the browser: write to the bot as several users and follow each update.

Its chats survive a restart, and only pages of this machine reach it. The simulator does not depend on it.
"""
