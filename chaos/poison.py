"""Which updates are poison: told by their number alone, so that the bot and the judge agree without talking.

Promises that about one of 500 raises each time it runs, and one of 1,000 kills the process it runs in, as a segfault or
the out-of-memory killer would. All others are innocent: nobody may bury them.
"""


def raises(update_id: int) -> bool:
    return update_id % 500 == 250


def kills(update_id: int) -> bool:
    """Under threads and gevent that is the whole worker, and whatever else runs in it."""
    return update_id % 1000 == 480


def is_poison(update_id: int) -> bool:
    return raises(update_id) or kills(update_id)
