"""The Celery side: the task, its request, and what a worker does at start and shutdown."""
