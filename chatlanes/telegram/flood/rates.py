"""The optional rate limits, as the time between two messages. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

#: The number of messages a chat may get at once before its rate applies. Telegram allows short bursts.
BURST = 3
#: The bot may make up for unused slots of the last 0.05 s, so that the limit is exceeded by at most 1 % in any 10 s.
#: Limits below 20 messages/s have no slack, because a single extra message would exceed that.
SLACK_S = 0.05


@dataclass(frozen=True)
class Rates:
    """Messages per second of a bot, per second in one chat, per minute in one group or channel. None: no limit."""

    per_bot: float | None = None
    per_chat: float | None = None
    per_group: float | None = None

    @property
    def are_set(self) -> bool:
        return bool(self.per_bot or self.per_chat or self.per_group)

    def spacing(self, chat: int | str | None) -> Spacing:
        if not self.are_set:
            return _UNLIMITED
        bot_us, chat_us = _interval_us(self.per_bot, 1), _interval_us(self.per_chat, 1)
        group_us = _interval_us(self.per_group, 60) if is_group(chat) else 0
        return Spacing(bot_us, max(0, round(SLACK_S * 1_000_000) - bot_us), chat_us, group_us)


class Spacing(NamedTuple):
    """The times between two messages, as arguments of the script `ask`; 0: no limit."""

    bot_us: int
    slack_us: int
    chat_us: int
    group_us: int


_UNLIMITED = Spacing(0, 0, 0, 0)


def is_group(chat: int | str | None) -> bool:
    """True for groups, supergroups and channels: their ids are negative, or names."""
    return not str(chat).isdecimal() if chat is not None else False


def _interval_us(limit: float | None, period_s: float) -> int:
    """The time between two evenly spaced messages, rounded up; 0: no limit."""
    return math.ceil(period_s * 1_000_000 / limit) if limit else 0
