"""Takes updates from Telegram and puts them into the lanes: `python -m poller`.

Promises that Telegram is told to forget an update only after Redis holds it durably.
Does not run the bot: that is the workers' part.
"""
