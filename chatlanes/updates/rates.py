"""Chooses the rate of an update (USER_RATE): how many updates a person, a chat, or your own key may have.

The rate depends on nothing but the update. Payments, updates of CONTROL, and changes of a chat, such as a user who
blocks the bot, are never limited, except that your own function may limit the last.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from celery_lanes.protocol import Rate
from chatlanes.settings import Settings
from chatlanes.settings.checks import RATE_BYS
from chatlanes.settings.imports import import_function
from chatlanes.updates.parsing import ParsedUpdate
from chatlanes.updates.routing import NEW_MESSAGES, by_chat, by_user, is_urgent, name_by

#: From an update to the key of its rate, or None: it has no limit.
RateKey = Callable[[dict[str, Any], ParsedUpdate], str | None]

#: Actions of a person, on purpose and as often as they like.
OF_PEOPLE = NEW_MESSAGES | {
    *("edited_message", "edited_channel_post", "edited_business_message", "guest_message"),
    *("callback_query", "inline_query", "chosen_inline_result", "message_reaction", "poll_answer"),
}
#: With the bot's id before it, a key of the lanes.
MOST_KEY_BYTES = 200


def rating(settings: Settings, user_rate: str) -> Callable[[dict[str, Any], ParsedUpdate], Rate | None]:
    """The function that gives an update its rate, or None. Raises ImportPathError. A function of the user's own raises
    KeysError if it fails.
    """
    most, _, seconds = user_rate.partition("/")
    rate = Rate("", int(most), round(float(seconds) * 1000), OVER[settings.user_rate_over])
    key_of = BUILT_IN.get(settings.user_rate_by) or _custom(settings.user_rate_by)

    def rate_of(update: dict[str, Any], parsed: ParsedUpdate) -> Rate | None:
        if is_urgent(parsed) or parsed.migration is not None:
            return None
        key = key_of(update, parsed)
        return None if key is None else rate._replace(key=f"{settings.bot_id}/{key}")

    return rate_of


OVER: dict[str, Any] = {"drop": "drop", "delay": "delay", "answer": "mark"}


def _user(update: dict[str, Any], parsed: ParsedUpdate) -> str | None:
    return next(iter(by_user(parsed)), None) if parsed.kind in OF_PEOPLE else None


def _chat(update: dict[str, Any], parsed: ParsedUpdate) -> str | None:
    return next(iter(by_chat(parsed)), None) if parsed.kind in OF_PEOPLE else None


BUILT_IN: dict[str, RateKey] = dict(zip(RATE_BYS, (_user, _chat), strict=True))


@cache
def _custom(by: str) -> RateKey:
    function = import_function("USER_RATE_BY", by, "a key, or None")

    def by_function(update: dict[str, Any], parsed: ParsedUpdate) -> str | None:
        what = f"a key of 1 to {MOST_KEY_BYTES} bytes without control characters"
        return name_by(f"{by} (USER_RATE_BY)", function, update, what, MOST_KEY_BYTES)

    return by_function
