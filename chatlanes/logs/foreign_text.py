"""Text from other systems in log lines and errors, such as Telegram's description of a refusal.

Guarantees one line of printable characters, of bounded length.
"""

#: Enough to understand a description; some repeat the whole request.
LONGEST = 300


def one_line(text: object, limit: int = LONGEST) -> str:
    """Control, invisible and line-breaking characters are escaped as Python writes them."""
    shown = text if isinstance(text, str) else "(not text)"
    escaped = "".join(each if each.isprintable() else _escaped(each) for each in shown[:limit])
    return escaped if len(shown) <= limit and len(escaped) <= limit else f"{escaped[:limit]}…"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
