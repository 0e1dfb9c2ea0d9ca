"""Which updates are poison: the update id alone decides, so the bot and the checker agree without communication.

About one update of 500 raises in each run, and another one of 500 kills the process it runs in, like a segfault or the
out-of-memory killer. All others are innocent and must not be buried.
"""


def raises(update_id: int) -> bool:
    return update_id % 500 == 250


def kills(update_id: int) -> bool:
    """With threads and gevent this is the whole worker, including the other updates it runs."""
    return update_id % 500 == 480


def is_poison(update_id: int) -> bool:
    return raises(update_id) or kills(update_id)
