"""The programs that are measured: Celery apps, bots, pollers and webhooks."""
