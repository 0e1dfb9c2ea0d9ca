"""Debian's Chromium, for tests of web pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
#: The timeout of each wait in the browser, in milliseconds; the same as in waiting.py.
WITHIN_MS = 60_000


@contextmanager
def browser(**options: object) -> Iterator[BrowserContext]:
    """A new browser context without cookies or cache. `options` are those of Browser.new_context."""
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM}: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        context = chromium.new_context(**options)  # type: ignore[arg-type]
        context.set_default_timeout(WITHIN_MS)
        expect.set_options(timeout=WITHIN_MS)
        yield context
        chromium.close()
