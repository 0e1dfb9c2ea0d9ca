r"""Text from other systems where it is printed: in log lines, in errors, in a terminal.

Guarantees that no character of it moves the cursor, hides or reorders other text, or begins a line of its own:
control characters, line and paragraph separators, directional controls and halves of surrogate pairs are escaped as
JSON and Python write them (`\u001b`). celery_lanes has the same table for its commands (cli/formatting.py); its import
loads Celery, which a settings command or a FILTER does not need.
"""

import re

#: Enough to understand a description; some repeat the whole request.
LONGEST = 300

#: C0 except tab and line feed, DEL and C1; U+2028 and U+2029; marks, embeddings, overrides and isolates of direction.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_INDENT = "    "


def visible(text: str) -> str:
    """The text with its line feeds and tabs. JSON stays JSON."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def indented(text: str) -> str:
    """The text, each line after the first one indented, so that none looks like the beginning of a record."""
    return visible(text.rstrip("\n")).replace("\n", f"\n{_INDENT}")


def one_line(text: object, limit: int = LONGEST) -> str:
    """The text as one line of at most this many characters."""
    shown = text if isinstance(text, str) else "(not text)"
    escaped = visible(shown[:limit]).replace("\n", r"\n").replace("\t", r"\t")
    return escaped if len(shown) <= limit and len(escaped) <= limit else f"{escaped[:limit]}…"
