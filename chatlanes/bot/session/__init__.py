"""ctx.session: data that a bot stores per chat, written in the step that settles the update."""

from chatlanes.bot.session.codec import SessionError
from chatlanes.bot.session.session import Session, SessionPlan
from chatlanes.bot.session.stored import Stored, UnsafeKeyError

__all__ = ["Session", "SessionError", "SessionPlan", "Stored", "UnsafeKeyError"]
