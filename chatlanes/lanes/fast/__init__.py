"""Replacements of parts of Celery, kombu and billiard that only save time: no promise depends on them.

`apply` applies the pieces of table.py for which the installed packages hold the code that each of them replaces.
"""

from chatlanes.lanes.fast.table import PIECES, Piece, apply

__all__ = ["PIECES", "Piece", "apply"]
