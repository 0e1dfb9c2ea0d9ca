"""The Celery app and its one task, which runs the bot on one update."""
