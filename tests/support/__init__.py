"""What the tests of several folders use."""

from pathlib import Path

#: The clone.
ROOT = Path(__file__).parents[2]
