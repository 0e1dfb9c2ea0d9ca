"""Every setting once: its type, unit, default and reason, read from the environment and `.env`.

Promises that a `Settings` is whole and right, and that every wrong variable is named in one error, never with a secret.
Does not read anything when imported: only `load()` does, and the entry points hand the value on.
"""

from chatlanes.settings.model import Settings, SettingsError
from chatlanes.settings.reading import load
from chatlanes.settings.spelling import settings_warnings

__all__ = ["Settings", "SettingsError", "load", "settings_warnings"]
