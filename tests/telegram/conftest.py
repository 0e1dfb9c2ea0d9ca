"""A simulated Bot API and a client for it, new for each test."""

from tests.support.http_server import api, quick_repeats, web

__all__ = ["api", "quick_repeats", "web"]
