"""Broadcasts: one message, or one run of a function, for each of many chats, in the lanes of these chats.

A broadcast is in Redis as a whole: its call, its recipients, its place among them and its results. Workers feed it into
the lanes by themselves (feeding.py), so it needs no other process, and continues after any of them died.
"""

from chatlanes.broadcasts import keys
from chatlanes.broadcasts.broadcast import BroadcastProgress, Broadcasts, Call, UnknownBroadcastError, bots_with, new_id
from chatlanes.broadcasts.feeding import FEED_TASK, Feeder, feed_again, feed_message
from chatlanes.broadcasts.pacing import RateError, checked_rate
from chatlanes.broadcasts.reasons import NOT_REACHED, Reason, detail_of, reason_of
from chatlanes.broadcasts.recipients import RecipientsError, is_chat_id, read_recipients
