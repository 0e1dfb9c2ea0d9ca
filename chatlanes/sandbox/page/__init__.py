"""A page that stands in for Telegram: one writes to the bot as several users, and sees what becomes of each update.

Promises that what was written there is there after a restart, and that only this machine's own pages reach it.
Does not slow down a simulator without a page: it extends the simulator, which knows nothing of it.
"""
