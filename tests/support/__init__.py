"""Helpers shared by the tests of several folders."""

from pathlib import Path

#: The root of the repository.
ROOT = Path(__file__).parents[2]
