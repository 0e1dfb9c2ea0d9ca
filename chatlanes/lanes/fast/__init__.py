"""Replacements of parts of Celery, kombu and billiard that only save time. No promise depends on them."""
