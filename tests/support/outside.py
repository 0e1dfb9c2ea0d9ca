"""The environment of processes that chatlanes configures: that of the tests without the settings of the developer."""

import os

from chatlanes.settings import Settings
from tests.support.forks import CELERY

#: FAST is passed on: `FAST=0 pytest` runs without lanes/fast.
OURS = {name.upper() for name in Settings.model_fields} - {"FAST"}

#: What their processes have imported if they are forked. The app acts in each worker of a process that has imported it.
IMPORTED = (*CELERY, "chatlanes.__main__", "chatlanes.poller.__main__", "chatlanes.tasks.app")


def outside() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in OURS}
