"""Every setting once: its type, unit, default and reason, read from the environment and `.env`.

Guarantees that a `Settings` is complete and valid, and that one error names every wrong variable, never a secret.
Importing it reads nothing: only `load()` does, and the entry points pass the value on.
"""

from chatlanes.settings.model import Settings, SettingsError, secret_from
from chatlanes.settings.reading import load
from chatlanes.settings.spelling import settings_warnings
