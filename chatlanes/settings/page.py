"""docs/settings.md, written from the settings themselves.

Guarantees that the page has every setting once, in the group that the last of GROUPS before it began: a new setting
needs no line here. Does not write files: `chatlanes settings page` prints.
"""

from chatlanes.settings.table import SettingRow, markdown, rows

INTRO = """# Settings

Settings are read from the environment, and from a file `.env` in the folder where a command is started
([.env.example](../.env.example) lists all of them). If a setting is in both, the environment wins. All parts must have
the same settings. A wrong value ends a command before it does anything, with one line for each wrong setting. A name
that looks like a misspelled setting causes a warning at the start, and so does a line of `.env` that is not
`NAME=value`.

`chatlanes settings page` generates this page.
"""

#: The first setting of each group, and the group's heading.
GROUPS = {
    "bot_token": "The bot",
    "redis_url": "Redis",
    "order_by": "Order",
    "collect": "Conversations",
    "allowed_updates": "Fetching updates",
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
