"""docs/settings.md, written from the settings themselves.

Promises that every setting stands in the page once, in the group that the last one of GROUPS before it began: a new
setting needs no line here. Does not write files: `chatlanes settings page` prints.
"""

from chatlanes.settings.table import SettingRow, markdown, rows

INTRO = """# Settings

From the environment, or from a file `.env` in the folder where a command is started
([.env.example](../.env.example) has all of them); the environment wins. All parts read the same ones, so give all of
them the same. A wrong value ends a command with one line for each wrong setting, before it does anything.

`chatlanes settings page` wrote this page; a test holds it against the code.
"""

#: A group begins at this setting, under this heading.
GROUPS = {
    "bot_token": "The bot",
    "redis_url": "Redis",
    "order_by": "Order",
    "allowed_updates": "Ways in",
    "lease_seconds": "Running updates",
    "uncertain_call": "Calls",
    "webhook_url": "The webhook receiver",
    "log_format": "Logs",
}


def page() -> str:
    """docs/settings.md."""
    grouped: dict[str, list[SettingRow]] = {}
    heading = ""
    for field, row in rows().items():
        heading = GROUPS.get(field, heading)
        grouped.setdefault(heading, []).append(row)
    return "\n".join([INTRO, *(f"## {heading}\n\n{markdown(group)}" for heading, group in grouped.items())])
