"""Clock, threads, pids and retries. Does not import asyncio, greenlet or Celery."""
