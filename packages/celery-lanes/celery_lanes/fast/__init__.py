"""Replacements of parts of Celery, kombu and billiard that only save time: no promise depends on them.

table.py applies each piece if the installed packages contain exactly the code that it replaces.
"""
