"""The environment of processes that chatlanes configures: that of the tests without the settings of the developer."""

import os

from chatlanes.settings import Settings

#: FAST is passed on: `FAST=0 pytest` runs without lanes/fast.
OURS = {name.upper() for name in Settings.model_fields} - {"FAST"}


def outside() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in OURS}
