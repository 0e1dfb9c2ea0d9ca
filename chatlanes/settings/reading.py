"""Reads the settings from the environment and from `.env`; the environment wins.

Guarantees one error with all wrong variables, and no secret in its text, its repr or its traceback.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import DotEnvSettingsSource, EnvSettingsSource

from chatlanes.settings import checks
from chatlanes.settings.bot_files import likely_path
from chatlanes.settings.bots import read_bots
from chatlanes.settings.model import Settings, SettingsError
from chatlanes.settings.spelling import settings_warnings, without_dotenv_warnings
from chatlanes.settings.table import SettingRow, rows


def load(env: Mapping[str, str] | None = None, env_file: str | Path | None = ".env") -> Settings:
    """The settings of this process. Raises SettingsError with a line for each wrong variable, and for each misspelled
    one, which may be the reason.

    `env` replaces the environment. A missing `env_file` is not an error.
    """
    given = _read(env, env_file)
    try:
        settings = Settings(**given)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False)
    else:
        if settings.bots is not None:
            settings._many = read_bots(settings.bots, given, _variables(env, env_file))
        return settings
    # Outside the except block: pydantic's error holds the values, secrets among them, and would be its context.
    raise SettingsError("\n".join([*map(_line, wrong), *settings_warnings(env, env_file)]))


def _read(env: Mapping[str, str] | None, env_file: str | Path | None) -> dict[str, Any]:
    environment = EnvSettingsSource(Settings)
    if env is not None:
        environment.env_vars = {name.lower(): value for name, value in env.items()}
    behind: dict[str, Any] = {}
    if env_file is not None:
        _check_kind(Path(env_file))
        try:
            with without_dotenv_warnings():
                behind = DotEnvSettingsSource(Settings, env_file=env_file)()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise SettingsError(f"{env_file} cannot be read: {reason}") from None
    return {**checks.without_blanks(behind), **checks.without_blanks(environment())}


def _check_kind(path: Path) -> None:
    """The library ignores both of these, as it ignores a missing file. Raises SettingsError."""
    if path.is_dir():
        raise SettingsError(
            f"{path} is a directory: remove it and write a file (a container makes one if it mounts a missing file)"
        )
    if path.is_symlink() and not path.exists():
        raise SettingsError(f"{path} is a link to a missing file: correct it or remove it")


def variables(prefix: str, env_file: str | Path | None = ".env") -> dict[str, str]:
    """The variables whose names begin with this, for libraries that have variables of their own."""
    return {name: value for name, value in _variables(None, env_file).items() if name.startswith(prefix)}


def _variables(env: Mapping[str, str] | None, env_file: str | Path | None) -> dict[str, str]:
    """All variables by name: a token may have any name."""
    with without_dotenv_warnings():
        behind = dotenv_values(env_file) if env_file is not None else {}
    set_ = {name: value for name, value in (os.environ if env is None else env).items() if value.strip()}
    return {**{name: value for name, value in behind.items() if value}, **set_}


def export(env_file: str | Path = ".env") -> None:
    """Puts the variables of the file into the environment, where the code of a bot looks for them; that of the
    environment wins.
    """
    os.environ.update(_variables(None, env_file))


def _line(detail: ErrorDetails) -> str:
    field = str(detail["loc"][0])
    row = rows()[field]
    likely = likely_path(str(detail["input"])) if field == "bot" else None
    suggestion = f"; did you mean {likely}?" if likely else ""
    return f"{row.name}{_shown(row, detail['input'])}: allowed is {row.allowed}{suggestion}"


def _shown(row: SettingRow, value: Any) -> str:
    if value is None:
        return " is not set"
    if row.secret or isinstance(value, SecretStr):
        return " is wrong (its value is secret and not shown)"
    show = checks.redis_address_shown if row.name == "REDIS_URL" else checks.shown
    return f"={show(str(value))}"
