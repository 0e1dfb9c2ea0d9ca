"""Every Redis key of what bots keep, with its type. They live in the database of the lanes, beside them."""

#: string: what a bot keeps under one of its keys, named <bot id>/<key>: as JSON where it is a session (session.py)
SESSION = "session:"


def session(bot_id: str, key: str) -> str:
    return f"{SESSION}{bot_id}/{key}"
