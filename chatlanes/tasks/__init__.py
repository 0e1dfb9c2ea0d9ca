"""The Celery app and its two tasks: one runs the bot on one update, the other feeds a broadcast."""
