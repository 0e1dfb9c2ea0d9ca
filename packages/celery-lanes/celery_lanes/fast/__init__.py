"""Replacements of parts of Celery, kombu and billiard that only save time: no promise depends on them.

`apply` applies each piece of table.py if the installed packages contain exactly the code that it replaces.
"""

from celery_lanes.fast.table import PIECES, Piece, apply

__all__ = ["PIECES", "Piece", "apply"]
