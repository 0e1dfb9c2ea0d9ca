"""ctx.broadcast refuses recipients that are not chat ids, before anything is stored."""

from __future__ import annotations

from typing import Any, cast

import pytest

from chatlanes.bot.broadcasting import Broadcasting
from chatlanes.bot.stored import Stored
from chatlanes.broadcasts import RecipientsError
from chatlanes.settings import Settings


@pytest.mark.parametrize("to", ["123", "session", b"123", 123, None, ["ann"], [7, None]])
def test_what_is_not_an_iterable_of_chat_ids_is_refused(to: Any) -> None:
    broadcasting = Broadcasting(Settings(bot_token="1:A", _env_file=None), cast("Stored", None))
    with pytest.raises(RecipientsError, match=r"give chat ids, such as \[123456\], or 'sessions'"):
        broadcasting.start(to, "sendMessage", None, None, False, {"text": "hi"})
