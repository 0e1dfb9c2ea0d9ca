"""Many bots in one deployment: the file that BOTS names, a table for each bot.

Guarantees that each bot has the ordinary settings, overridden by its table and checked by the same rules, and one
error that names file, table and key of everything that is wrong, never a secret. A missing token is not an error yet:
Flower needs none. A process that needs it gets an error that says where it belongs.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from chatlanes.settings import checks
from chatlanes.settings.model import Settings, SettingsError
from chatlanes.settings.table import rows

#: The keys of a table, in addition to the place of its token. All other settings are the same for every bot.
PER_BOT = (
    *("bot", "bot_args", "schedules", "bot_api_url", "bot_api_files", "order_by", "queues"),
    *("allowed_updates", "filter"),
    *("collect", "collect_quiet", "collect_max_wait", "collect_max", "interrupt", "control"),
    "max_pending",
    *("stale", "timer_late", "timer_late_after", "session_ttl", "max_attempts", "retry_backoff", "uncertain_call"),
    *("flood_wait", "rate_per_bot", "rate_per_chat", "rate_per_group", "broadcast_rate"),
    "typing",
)
TOKEN_KEYS = ("token_env", "token_file")
#: It becomes a part of queue names and of the webhook's path.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMES = "a name begins with a letter, then up to 31 of A-Z a-z 0-9 _ -"


class BotSettings(Settings):
    """The settings of one bot of the file."""

    named: str
    bots_file: str
    #: Why the bot has no token.
    no_token: str = ""

    @property
    def bot_name(self) -> str:
        return self.named

    @property
    def token(self) -> str:
        if self.bot_token is None:
            raise SettingsError(f"{self.bots_file}: [{self.bot_name}] has no token: {self.no_token}")
        return self.bot_token.get_secret_value()

    @property
    def queue_group(self) -> str:
        return f"{super().queue_group}.{self.bot_name}"

    def name_of(self, field: str) -> str:
        if field == "bot_token":
            return f"the token of [{self.bot_name}] in {self.bots_file}"
        return f"{self.bots_file}: [{self.bot_name}] {field}"


class AddedBot(BotSettings):
    """The settings of a bot that was added while the deployment runs: those of the deployment, with its own token and
    BOT. Its name is its id. All added bots share the queues of the deployment.
    """

    username: str
    added_ms: int

    @classmethod
    def of(cls, settings: Settings, token: str, bot: str, username: str = "", added_ms: int = 0) -> "AddedBot":
        """The values are valid: `settings` has been checked, and the others when the bot was added."""
        own = {"bot_token": SecretStr(token), "bot": bot, "bots": None, "schedules": None, "webhook_secret": None}
        names = {
            "named": token.partition(":")[0],
            "bots_file": "",
            "no_token": "",
            "username": username,
            "added_ms": added_ms,
        }
        return cls.model_construct(**{**dict(settings), **own, **names})

    @classmethod
    def removed(cls, settings: Settings, bot_id: int) -> "AddedBot":
        """The settings of a bot that was removed: without a token, for the steps that call no method."""
        return cls.of(settings, f"{bot_id}:", "")

    def own_name(self) -> str | None:
        """The bot's username in lower case; None if it is not known."""
        return self.username.lower() or None

    @property
    def version(self) -> tuple[str, str, int]:
        """Equal for two of the same bot if nothing has changed."""
        return self.token, self.bot, self.added_ms

    @property
    def queue_group(self) -> str:
        return Settings.queue_group.fget(self)  # type: ignore[attr-defined]

    def name_of(self, field: str) -> str:
        return f"added bot {self.bot_name}: {field}"


def read_bots(path: Path, ordinary: Mapping[str, Any], env: Mapping[str, str]) -> tuple[BotSettings, ...]:
    """The bots of the file, in its order. `ordinary` are the given settings; `env` has the tokens. Raises SettingsError
    with a line for each thing that is wrong.
    """
    wrong: list[str] = []
    bots = []
    for name, table in _tables(path).items():
        problems, bot = _bot(path, name, table, ordinary, env)
        wrong += problems
        bots += [bot] if bot else []
    wrong += _together(path, bots, ordinary)
    if wrong:
        raise SettingsError("\n".join(wrong))
    return tuple(bots)


def _tables(path: Path) -> dict[str, Any]:
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except UnicodeDecodeError:
        problem = f"{path} is not UTF-8 text"
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}"
    except tomllib.TOMLDecodeError as error:
        problem = f"{path} is not TOML: {error}"  # contains a place, never a value
    else:
        if tables:
            return tables
        problem = f"{path} names no bot: write a table for each, [name] with a token_env or token_file"
    # Outside the except block: the error contains the whole text, which may have a token in it.
    raise SettingsError(problem)


def _bot(
    path: Path, name: str, table: Any, ordinary: Mapping[str, Any], env: Mapping[str, str]
) -> tuple[list[str], BotSettings | None]:
    """The errors of a table, or the bot if there are none."""
    if not isinstance(table, dict):
        return [f"{path}: {name} is not in a table: write [the bot's name] above it"], None
    if not NAME.fullmatch(name):
        return [f"{path}: [{checks.shown(name)}]: {_NAMES}"], None
    wrong = list(_wrong_keys(path, name, table))
    given, no_token, place = _token(path, table, env)
    said = {key: value for key, value in checks.without_blanks(table).items() if key in PER_BOT}
    own = {"named": name, "bots_file": str(path), "no_token": no_token}
    shared = {key: value for key, value in ordinary.items() if key not in ("bot_token", "bots")}
    try:
        bot = BotSettings(**{**shared, **said, **own, **({"bot_token": given} if given else {})})
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
    else:
        return wrong, None if wrong else bot
    # Outside the except block: pydantic's error contains the values, including the token.
    for detail in details:
        field = str(detail["loc"][0])
        if field == "bot_token":
            shown = f"{place}, is wrong (its value is secret and not shown)"
            wrong.append(f"{path}: [{name}] the token, {shown}: allowed is {rows()[field].allowed}")
        else:  # of the table, or it does not fit the table, such as INTERRUPT=on for a bot with collect = "none"
            value = {**shared, **said}[field]
            wrong.append(f"{path}: [{name}] {field}={_shown(value)}: allowed is {rows()[field].allowed}")
    return wrong, None


def _wrong_keys(path: Path, name: str, table: Mapping[str, Any]) -> Iterable[str]:
    where = f"{path}: [{name}]"
    if {"token", "bot_token"} & set(table):
        yield (
            f"{where} holds a token: move it to the environment or to a file of its own, and name that with "
            'token_env = "NAME" or token_file = "/run/secrets/name"'
        )
    if len(set(TOKEN_KEYS) & set(table)) != 1:
        yield f"{where} needs one of token_env and token_file: where the token is"
    if "token_env" in table and not (isinstance(table["token_env"], str) and VARIABLE.fullmatch(table["token_env"])):
        yield f"{where} token_env (its value is not shown): allowed is the name of a variable, such as SHOP_TOKEN"
    if "token_file" in table and not (isinstance(table["token_file"], str) and table["token_file"].strip()):
        yield f"{where} token_file: allowed is the path of a file, such as /run/secrets/shop"
    known = (*TOKEN_KEYS, *PER_BOT)
    for key in set(table) - {*known, "token", "bot_token"}:
        yield f"{where} does not know {checks.shown(key)}: allowed are {', '.join(known)}"


def _token(path: Path, table: Mapping[str, Any], env: Mapping[str, str]) -> tuple[str, str, str]:
    """The token, or why there is none; and where it was looked up."""
    variable, file = table.get("token_env"), table.get("token_file")
    if isinstance(variable, str):
        place = f"{checks.shown(variable)} (token_env)"
        return env.get(variable, "").strip(), f"{place} is not set", place
    if not isinstance(file, str):
        return "", "", ""
    place = f"{checks.shown(file)} (token_file)"
    try:
        # Relative to the file of bots, wherever a command is started.
        return (path.parent / file).read_text("utf-8").strip(), f"{place} is empty", place
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, a NUL in the path
        return "", f"{place} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}", place


def _together(path: Path, bots: Iterable[BotSettings], ordinary: Mapping[str, Any]) -> Iterable[str]:
    """The errors that concern several bots."""
    by_id: dict[int, str] = {}
    with_token = [bot for bot in bots if bot.bot_token]
    for bot in with_token:
        other = by_id.setdefault(bot.bot_id, bot.bot_name)
        if other != bot.bot_name:
            yield f"{path}: [{other}] and [{bot.bot_name}] have the token of the same bot"
    alone = str(ordinary.get("bot_token", "")).partition(":")[0]
    if alone.isdecimal() and len(with_token) == len(list(bots)) and int(alone) not in by_id:
        yield f'BOT_TOKEN is set, and its bot is not in {path}: unset it, or add a table with token_env = "BOT_TOKEN"'


def _shown(value: Any) -> str:
    return checks.shown(", ".join(map(str, value)) if isinstance(value, list) else str(value))
