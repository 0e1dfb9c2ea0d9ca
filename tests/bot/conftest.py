"""A Bot API and a client that calls it, for each test its own."""

from tests.support.http_server import api, quick_repeats, web

__all__ = ["api", "quick_repeats", "web"]
