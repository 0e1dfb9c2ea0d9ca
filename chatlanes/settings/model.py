"""The settings themselves: one field each, with everything anyone says about it.

Promises that a value of this class is whole, valid and unchangeable, and that its repr holds no secret.
Does not read the environment: `settings.reading` does, and `settings.table` writes the documentation from here.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from chatlanes.settings import checks


def text(default: str | None, allowed: str, means: str, *, shown: bool = True) -> Any:
    return Field(default, description=means, repr=shown, json_schema_extra={"unit": "", "allowed": allowed})


def number(default: float | None, unit: str, least: float, most: float, means: str) -> Any:
    whole = isinstance(least, int)
    allowed = f"a whole number from {least:,} to {most:,}" if whole else f"a number from {least:,g} to {most:,g}"
    extra: Any = {"unit": unit, "allowed": allowed}
    return Field(default, ge=least, le=most, allow_inf_nan=False, description=means, json_schema_extra=extra)


def _secret(check: Any) -> AfterValidator:
    return AfterValidator(lambda secret: SecretStr(check(secret.get_secret_value())))


BotToken = Annotated[SecretStr, _secret(checks.bot_token)]
WebhookSecret = Annotated[SecretStr, _secret(checks.webhook_secret)]
WebAddress = Annotated[str, AfterValidator(checks.web_address)]
RedisAddress = Annotated[str, AfterValidator(checks.redis_address)]
ImportPath = Annotated[str, AfterValidator(checks.import_path)]
Order = Annotated[str, AfterValidator(checks.order)]
KindsOrPath = Annotated[str, AfterValidator(checks.kinds_or_path)]
Kinds = Annotated[tuple[str, ...], BeforeValidator(checks.kinds)]
Networks = Annotated[tuple[str, ...], BeforeValidator(checks.networks)]
ExistingFile = Annotated[Path, AfterValidator(checks.existing_file)]


class SettingsError(Exception):
    """One line for each wrong variable: its name, its value (never a secret's), and what is allowed."""


NO_BOT_GIVEN = (
    "BOT_TOKEN is not set: write the token that @BotFather gave you into the environment or into .env in this folder; "
    "`chatlanes sandbox` tries a bot without one"
)
_MODULE_ATTRIBUTE = "module:attribute, such as mybot:handle"


class Settings(BaseSettings):
    """Each setting once. The order is that of the documentation."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    bot_token: BotToken | None = text(None, "<digits>:<letters>, as @BotFather gives it", "From @BotFather.")
    bot_api_url: WebAddress = text(
        "https://api.telegram.org",
        "an address with http:// or https://, without a query",
        "Where the Bot API answers: Telegram's servers, or a local Bot API server.",
    )
    bot: ImportPath = text(
        "chatlanes.demo.echo:handle",
        _MODULE_ATTRIBUTE,
        "Import path of the bot. The current directory is looked in first.",
    )
    bots: ExistingFile | None = text(
        None,
        "a file that exists",
        "Many bots in one deployment: a TOML file with a table for each, in place of `BOT_TOKEN` (docs/many_bots.md).",
    )
    redis_url: RedisAddress = text(
        "redis://127.0.0.1:6379/0",
        "redis://, rediss:// or sentinel://, then host, port and the number of the database",
        "The Redis that holds the lanes. With `rediss://` certificates are checked.",
        shown=False,
    )
    redis_ca: ExistingFile | None = text(
        None, "a file that exists", "Certificates (PEM) that `rediss://` trusts, instead of the system's."
    )
    sentinel_master: Annotated[str | None, Field(validate_default=True)] = text(
        None, "the name of the master, because REDIS_URL is sentinel://", "Name of the master, for `sentinel://` only."
    )
    durable_replicas: int = number(
        0,
        "replicas",
        0,
        100,
        "How many replicas of Redis must have a batch too before Telegram may forget it (`WAIT`): for failovers.",
    )
    order_by: Order = text(
        "chat",
        "chat, chat+user, topic, user, bot, or module:function",
        "What updates are ordered by: `chat`, `chat+user`, `topic`, `user`, `bot` (all of them in one lane), or your "
        "own `module:function`, from an update to its list of keys.",
    )
    queues: int = number(
        8,
        "",
        1,
        1024,
        "How many dedicated queues `updates.0` … there are; a chat always maps to the same one. "
        "More let `-Q` divide the chats more finely; each costs a little at every turn. Lower it only while nothing "
        "waits: nobody reads the queues above it.",
    )
    allowed_updates: Annotated[Kinds | None, NoDecode] = text(
        None,
        "a comma list of kinds of update, such as message,callback_query",
        "Passed to Telegram and checked again at the door. Unset leaves what Telegram has in force.",
    )
    filter: KindsOrPath | None = text(
        None,
        "a comma list of kinds of update, or module:function",
        "Which updates are let in, of those that come: a comma list of kinds, or your own `module:function`, from an "
        "update to whether it is wanted. What is not is dropped, counted and never stored.",
    )
    poll_timeout: int = number(
        50, "s", 0, 50, "How long one long poll waits for updates. The server's own cap is 50; tests want less."
    )
    poll_balance: float = number(
        0.0,
        "",
        0.0,
        1.0,
        "0 polls again at once, for the least delay; 1 waits between polls so that each brings more, for the fewest.",
    )
    poll_max_delay: float = number(
        0.5, "s", 0.0, 60.0, "The longest wait between polls that `POLL_BALANCE` may make; none after a full batch."
    )
    poll_retry_max: float = number(
        30.0,
        "s",
        0.1,
        3600.0,
        "The longest wait between two tries while Telegram is in trouble; the first is 1 s at most, each next twice "
        "as long. A `retry_after` of Telegram's own is obeyed, up to an hour; then Telegram is asked again.",
    )
    poll_give_up_after: float | None = number(
        None,
        "s",
        0.1,
        31_536_000.0,
        "After so long in trouble with Telegram the poller ends with exit code 1, for a supervisor that wants to know. "
        "Unset: it tries for ever.",
    )
    max_pending: int = number(
        10_000,
        "updates",
        1,
        100_000_000,
        "The backlog that may wait or run: the poller asks for no more than there is room for, and for nothing when "
        "there is next to none. Telegram holds the rest.",
    )
    lease_seconds: float = number(
        15.0,
        "s",
        1.0,
        3600.0,
        "How long a dead worker keeps an update. Longer delays recovery; shorter lets a slow machine lose live ones.",
    )
    stale: Literal["run", "skip"] = text(
        "run",
        "run or skip",
        "What becomes of an update that Telegram takes no answer to any more, such as an inline query of 30 s ago: "
        "`skip` settles it without running it.",
    )
    session_ttl: float | None = number(
        None, "s", 1.0, 315_360_000.0, "How long a session is kept after its last change. Unset: for ever."
    )
    update_timeout: float | None = number(
        None, "s", 0.1, 86_400.0, "Soft limit for one update; its hard limit is 10 s later. Unset: no limit."
    )
    max_attempts: int = number(
        5, "attempts", 1, 1_000, "Failed attempts (or deaths) before an update is buried and its lanes go on."
    )
    retry_backoff: float = number(
        1.0, "s", 0.0, 60.0, "Wait before the second attempt; doubles each time, at most 60 s. Only its own lanes wait."
    )
    uncertain_call: Literal["repeat", "skip"] = text(
        "repeat",
        "repeat or skip",
        "What becomes of a Bot API call of which a dead worker left no outcome: `repeat` may send it twice, "
        "`skip` may not send it at all.",
    )
    flood_wait: float = number(
        5.0,
        "s",
        0.0,
        60.0,
        "The longest a call waits in its place when Telegram says 429, or a `RATE_…` is used up; for more the update "
        "is put back until the wait is over, which counts no attempt and takes no slot.",
    )
    rate_per_bot: float | None = number(
        None,
        "messages/s",
        0.01,
        100_000.0,
        "The bot sends no more, over all workers. Telegram advises 30. Unset: no limit.",
    )
    rate_per_chat: float | None = number(
        None, "messages/s", 0.001, 100_000.0, "The same for one chat, which may get 3 at once. Telegram advises 1."
    )
    rate_per_group: float | None = number(
        None,
        "messages/min",
        0.01,
        1_000_000.0,
        "The same for one group or channel, which may get 3 at once; besides RATE_PER_CHAT. Telegram advises 20.",
    )
    webhook_url: WebAddress | None = text(
        None, "an address with http:// or https://, without a query", "The public address that Telegram sends to."
    )
    webhook_secret: WebhookSecret | None = text(
        None,
        "1 to 256 of A-Z a-z 0-9 _ -",
        "What Telegram says with every update to prove that it is Telegram. Unset: one that follows from BOT_TOKEN.",
    )
    webhook_host: str = text(
        "127.0.0.1", "a host name or address", "Where the receiver listens: by default only behind a proxy, for TLS."
    )
    webhook_port: int = number(8080, "", 1, 65_535, "Port that the receiver listens on.")
    webhook_reorder: int = number(
        100,
        "ms",
        0,
        10_000,
        "How long an update that came by webhook waits at most for those with lower ids: Telegram may send them later. "
        "0: it does not wait.",
    )
    webhook_trusted_proxies: Annotated[Networks, NoDecode, Field(validate_default=True)] = text(
        "127.0.0.1,::1",
        "a comma list of addresses and networks, such as 127.0.0.1,10.0.0.0/8",
        "Proxies whose `X-Forwarded-For` is believed; from anyone else it is ignored.",
    )
    webhook_networks: Annotated[Networks | None, NoDecode] = text(
        None,
        "a comma list of addresses and networks, such as telegram,10.0.0.0/8",
        "Who may send updates at all; `telegram` stands for Telegram's networks. Unset: whoever knows the secret.",
    )

    fast: Literal["0", "1"] = text(
        "1",
        "0 or 1",
        "`0` runs the worker on Celery's own pools, requests and tracer: slower, with the same guarantees "
        "(docs/fast.md). For finding out whether a problem has to do with the replacements.",
    )
    log_format: Literal["text", "json"] = text(
        "text",
        "text or json",
        "How every process writes its log: `text`, or `json`, one object a line with ids as fields "
        "(docs/logs-and-traces.md).",
    )

    _blanks_are_unset = model_validator(mode="before")(checks.without_blanks)

    @field_validator("sentinel_master")
    @classmethod
    def _sentinel_needs_a_master(cls, master: str | None, info: ValidationInfo) -> str | None:
        if master is None and info.data.get("redis_url", "").startswith("sentinel:"):
            raise ValueError
        return master

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what it is given: building one reads nothing, so that only `load` can surprise."""
        return (init_settings,)

    #: Of each bot in the file that BOTS names, as `settings.reading` read it.
    _many: "tuple[Settings, ...]" = PrivateAttr(())

    @property
    def served(self) -> "tuple[Settings, ...]":
        """The settings of each bot that is served: those of the file that BOTS names, else these."""
        return self._many or (self,)

    @property
    def bot_name(self) -> str:
        """What the file calls it; empty for a bot that is the only one."""
        return ""

    def name_of(self, field: str) -> str:
        """What whoever set it calls this field."""
        return field.upper()

    @property
    def token(self) -> str:
        """Raises SettingsError when there is none."""
        if self.bot_token is None:
            raise SettingsError(NO_BOT_GIVEN)
        return self.bot_token.get_secret_value()

    @property
    def bot_id(self) -> int:
        """The bot's own user id: the digits of its token. Raises SettingsError when there is none."""
        return int(self.token.partition(":")[0])

    @property
    def queue_group(self) -> str:
        """The bot's queues are named by it: they share a backlog, and have their turn among those of other bots."""
        return "updates"

    @property
    def express_queue(self) -> str:
        """What Telegram waits seconds for: looked at before all others."""
        return f"{self.queue_group}.express"

    @property
    def queue_names(self) -> list[str]:
        return [f"{self.queue_group}.{number}" for number in range(self.queues)]
