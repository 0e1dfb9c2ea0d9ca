"""Log lines as text or as JSON (LOG_FORMAT), with the ids of the update that they are about and without secrets.

Guarantees that a line written while a handler runs has the ids of its update, whichever code writes it, and that no
line contains the token of a bot that is served here. Does not change other texts in lines of the bot's own code.
"""

from chatlanes.logs.ids import Ids, UpdateIds, about
from chatlanes.logs.lines import JsonLines
from chatlanes.logs.redaction import Secrets
