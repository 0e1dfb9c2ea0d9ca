"""Moves updates from Telegram into the lanes: `chatlanes poller`, or `chatlanes.run(settings)` in a program.

Guarantees that an update is confirmed to Telegram only after it is durable in Redis. Does not run the bot: the workers
do.
"""
