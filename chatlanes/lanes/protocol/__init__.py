"""What is in Redis: keys, scripts and the typed commands around them. Imports neither Celery nor kombu."""
