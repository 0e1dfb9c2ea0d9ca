"""The outbox: one durable Bot API call in the lane of its chat, from any process that has the settings.

A call is a message of its lane: it runs when all updates and calls before it have ended, and later ones wait for it. A
worker makes it, with the journal and the flood control of every call (chatlanes/tasks/broadcasts.py).
"""

from chatlanes.outbox.call import KIND, OutboxCall, SendError, call_of, settings_for
from chatlanes.outbox.on_commit import send_on_commit
from chatlanes.outbox.results import State, ending
from chatlanes.outbox.sending import Outbox, OutboxFullError, Sent, find, outbox, send, sent
