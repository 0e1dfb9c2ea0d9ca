"""How many messages go in what time: the optional limits. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

#: So many messages a chat may get at once; then it waits until the rate has caught up. Telegram lets short bursts pass.
BURST = 3
#: What the bot may catch up of slots that went by unused: a twentieth of a second's, so that in any 10 s the limit is
#: exceeded by 1 % at most. A low limit has nothing to catch up: one message more would be more than that.
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

    def apart(self, chat: int | str | None) -> Apart:
        if not self.are_set:
            return _NONE
        bot_us, chat_us = _apart_us(self.per_bot, 1), _apart_us(self.per_chat, 1)
        group_us = _apart_us(self.per_group, 60) if is_group(chat) else 0
        return Apart(bot_us, max(0, round(SLACK_S * 1_000_000) - bot_us), chat_us, group_us)


class Apart(NamedTuple):
    """The times between two messages to one chat, as the script `ask` wants them; 0: no such limit."""

    bot_us: int
    slack_us: int
    chat_us: int
    group_us: int


_NONE = Apart(0, 0, 0, 0)


def is_group(chat: int | str | None) -> bool:
    """Groups, supergroups and channels have ids below zero, or a name."""
    return not str(chat).isdecimal() if chat is not None else False


def _apart_us(limit: float | None, period_s: float) -> int:
    """The time between two messages that come evenly, rather a little longer; 0: no limit."""
    return math.ceil(period_s * 1_000_000 / limit) if limit else 0
