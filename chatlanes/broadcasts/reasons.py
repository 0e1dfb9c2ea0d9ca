"""How a recipient's part of a broadcast ended. Pure."""

from __future__ import annotations

from enum import Enum

from chatlanes.telegram import BotApiError
from chatlanes.telegram.errors import BadRequest, ChatMigrated, Forbidden


class Reason(Enum):
    """The result of one recipient; the value is the name in `status`, in the report and in Redis."""

    SENT = "sent"
    BLOCKED = "blocked"  # the user blocked the bot, or the bot was removed from the group
    DEACTIVATED = "deactivated"  # the user deleted the account
    NEVER_STARTED = "never started"  # the bot cannot begin the conversation, or knows no such chat
    REFUSED = "refused"  # Telegram refused the call for another reason
    UNCERTAIN = "uncertain"  # the call may have been made: it was begun, and its outcome was lost
    FAILED = "failed"  # the last attempt failed with an error, or the message was buried
    DROPPED = "dropped"  # the broadcast was cancelled before


#: Results of recipients that may not have got the message; each of these recipients is listed.
NOT_REACHED = tuple(reason for reason in Reason if reason not in (Reason.SENT, Reason.DROPPED))

#: Results whose description is kept.
DESCRIBED = (Reason.REFUSED, Reason.UNCERTAIN, Reason.FAILED)

#: Parts of Telegram's descriptions, in lower case.
_BY_DESCRIPTION = (
    ("user is deactivated", Reason.DEACTIVATED),
    ("bot was blocked", Reason.BLOCKED),
    ("bot was kicked", Reason.BLOCKED),
    ("bot is not a member", Reason.BLOCKED),
    ("group chat was deleted", Reason.DEACTIVATED),
    ("can't initiate conversation", Reason.NEVER_STARTED),
    ("chat not found", Reason.NEVER_STARTED),
    ("peer_id_invalid", Reason.NEVER_STARTED),
    ("user not found", Reason.NEVER_STARTED),
)


def reason_of(error: Exception) -> Reason | None:
    """The result that this error of a call means. None: it does not concern the recipient, and another attempt may
    succeed.
    """
    if not isinstance(error, BotApiError):
        return None
    if error.uncertain:
        return Reason.UNCERTAIN
    if not isinstance(error, BadRequest | Forbidden):
        return None
    description = error.description.lower()
    return next((reason for text, reason in _BY_DESCRIPTION if text in description), Reason.REFUSED)


def detail_of(error: Exception) -> str:
    """The description of the result that an error means."""
    if isinstance(error, ChatMigrated):
        return f"{error.description}: its chat id is now {error.migrate_to_chat_id}"
    return str(getattr(error, "description", error))
