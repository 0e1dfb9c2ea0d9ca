"""`celery -A tasks lanes …`: see what waits in the lanes, mend what was buried, stop and go on.

Promises sentences instead of tracebacks, plain text when piped, and to ask before anything is thrown away. Importing it
reads no setting: every `celery` command does.
"""

from tasks.cli import chat as chat
from tasks.cli import check as check
from tasks.cli import dead as dead
from tasks.cli import metrics as metrics
from tasks.cli import pausing as pausing
from tasks.cli import status as status
from tasks.cli.command import lanes

__all__ = ["lanes"]
