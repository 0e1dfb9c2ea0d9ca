"""A page that replaces Telegram in the browser: write to the bot as several users and follow each update.

What was written there survives a restart, and only pages of this machine reach it. The simulator does not depend on it.
"""
