"""The settings: one field each, with its limits and its documentation.

Guarantees that a value of this class is complete, valid and immutable, and that its repr contains no secret.
Does not read the environment: `settings.reading` does. `settings.table` generates the documentation from here.
"""

import hashlib
import hmac
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


def text(value: tuple[str | None, str], means: str, *, shown: bool = True) -> Any:
    """`value`: the default, and which values are allowed."""
    default, allowed = value
    return Field(default, description=means, repr=shown, json_schema_extra={"unit": "", "allowed": allowed})


def number(value: tuple[float | None, str, float, float], means: str) -> Any:
    """`value`: the default, the unit, and the least and the largest number that is allowed."""
    default, unit, least, most = value
    whole = isinstance(least, int)
    allowed = f"a whole number from {least:,} to {most:,}" if whole else f"a number from {least:,g} to {most:,g}"
    extra: Any = {"unit": unit, "allowed": allowed}
    # The limits refuse infinity, and `allow_inf_nan` of a float refuses nan.
    finite = None if whole else False
    return Field(default, ge=least, le=most, allow_inf_nan=finite, description=means, json_schema_extra=extra)


def _secret(check: Any) -> AfterValidator:
    return AfterValidator(lambda secret: SecretStr(check(secret.get_secret_value())))


BotToken = Annotated[SecretStr, _secret(checks.bot_token)]
WebhookSecret = Annotated[SecretStr, _secret(checks.webhook_secret)]
BotsKey = Annotated[SecretStr, _secret(checks.bots_key)]
WebAddress = Annotated[str, AfterValidator(checks.web_address)]
RedisAddress = Annotated[str, AfterValidator(checks.redis_address)]
ImportPath = Annotated[str, AfterValidator(checks.import_path)]
BotPath = Annotated[str, AfterValidator(checks.bot_path)]
BotArguments = Annotated[str, AfterValidator(checks.command_line)]
Order = Annotated[str, AfterValidator(checks.order)]
Collect = Annotated[str, AfterValidator(checks.collect)]
Control = Annotated[str, AfterValidator(checks.control)]
UserRate = Annotated[str, AfterValidator(checks.user_rate)]
RateBy = Annotated[str, AfterValidator(checks.rate_by)]
KindsOrPath = Annotated[str, AfterValidator(checks.kinds_or_path)]
Kinds = Annotated[tuple[str, ...], BeforeValidator(checks.kinds)]
Networks = Annotated[tuple[str, ...], BeforeValidator(checks.networks)]
Folder = Annotated[Path, AfterValidator(checks.folder)]
ExistingFile = Annotated[Path, AfterValidator(checks.existing_file)]


def secret_from(token: str) -> str:
    """The webhook secret of a bot whose settings have none: the same in every process that has the token. The token
    cannot be derived from it.
    """
    return hmac.new(token.encode(), b"chatlanes webhook", hashlib.sha256).hexdigest()


class SettingsError(Exception):
    """One line for each wrong variable: its name, its value (never a secret), and the allowed values."""


NO_BOT_GIVEN = (
    "BOT_TOKEN is not set: write the token that @BotFather gave you into the environment or into .env in this folder; "
    "`chatlanes sandbox` tries a bot without one"
)
_MODULE_ATTRIBUTE = "module:attribute, such as mybot:handle"


class Settings(BaseSettings):
    """Each setting once. The order is that of the documentation."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    bot_token: BotToken | None = text((None, "<digits>:<letters>, as @BotFather gives it"), "From @BotFather.")
    bot_api_url: WebAddress = text(
        ("https://api.telegram.org", "an address with http:// or https://, without a query"),
        "The address of the Bot API: Telegram's servers, or a local Bot API server.",
    )
    bot_api_files: Folder | None = text(
        (None, "an absolute path, except /"),
        "The folder of a local Bot API server that runs with `--local`, as this machine sees it. A path that the "
        "server returns is read only inside of this folder. Unset: never (docs/bot-api.md).",
    )
    bot: BotPath = text(
        ("chatlanes.demo.echo:handle", f"{_MODULE_ATTRIBUTE}; or a file such as mybot.py"),
        "Import path of the bot. It is looked for in the current directory first. A file is run as a script, until it "
        "polls: what it polls with is the bot (docs/migrate).",
    )
    bot_args: BotArguments = text(
        ("", "a command line, such as --config bot.toml"),
        "The command line that the bot's own code finds in `sys.argv`.",
    )
    schedules: ImportPath | None = text(
        (None, "module:attribute, such as mybot:schedules"),
        "Import path of a list of `Schedule`: functions of the bot that run at the times of cron expressions "
        "(docs/schedules.md).",
    )
    bots: ExistingFile | None = text(
        (None, "a file that exists"),
        "Many bots in one deployment: a TOML file with a table for each, instead of `BOT_TOKEN` (docs/many_bots.md).",
    )
    bots_key: BotsKey | None = text(
        (None, "keys that `chatlanes lanes bots key` prints, separated by commas"),
        "The key that seals the tokens of bots that are added while the deployment runs (docs/many_bots.md). Of "
        "several, the first seals, and all open. Without `BOT_TOKEN` and `BOTS`, only added bots are served.",
    )
    redis_url: RedisAddress = text(
        (
            "redis://127.0.0.1:6379/0",
            "redis://, rediss:// or sentinel://, then host, port and the number of the database, "
            "and not a Redis Cluster",
        ),
        "The Redis that holds the lanes. With `rediss://` certificates are checked, unless the URL has "
        "`?ssl_cert_reqs=none`.",
        shown=False,
    )
    redis_ca: ExistingFile | None = text(
        (None, "a file that exists"), "Certificates (PEM) that `rediss://` trusts, instead of the system's."
    )
    sentinel_master: Annotated[str | None, Field(validate_default=True)] = text(
        (None, "the name of the master, because REDIS_URL is sentinel://"),
        "Name of the master, for `sentinel://` only.",
    )
    durable_replicas: int = number(
        (0, "replicas", 0, 100),
        "How many replicas must have a batch before it is confirmed to Telegram (`WAIT`). For failovers.",
    )
    order_by: Order = text(
        ("chat", "chat, chat+user, topic, user, bot, or module:function"),
        "What updates are ordered by: `chat`, `chat+user`, `topic`, `user`, `bot` (all updates in one lane), or your "
        "own `module:function`, which returns the list of an update's keys: at most 64, each 1 to 200 bytes.",
    )
    queues: int = number(
        (8, "", 1, 1024),
        "The number of dedicated queues `updates.0` …; a chat always maps to the same one. "
        "More queues let `-Q` divide the chats more finely; each costs a little at every fetch. Lower it only while "
        "nothing waits: no worker reads the queues above it.",
    )
    collect: Collect = text(
        ("none", "none, albums, messages, or module:function"),
        "Updates that are one run (docs/conversations.md): the parts of an album (`albums`), successive messages of "
        "one sender (`messages`), or updates for which your own `module:function` returns the same name (None: the "
        "update runs alone).",
    )
    collect_quiet: float = number(
        (0.7, "s", 0.0, 60.0), "With `COLLECT`: a run begins when no further update has arrived for this long."
    )
    collect_max_wait: float = number(
        (5.0, "s", 0.0, 300.0), "With `COLLECT`: a run begins at the latest when its first update has waited this long."
    )
    collect_max: int = number((20, "updates", 1, 100), "With `COLLECT`: the most updates in one run.")
    interrupt: Annotated[Literal["off", "on", "steer"], AfterValidator(checks.interrupt)] = text(
        ("off", "off, or on or steer if COLLECT is not none"),
        "`on`: a newer update that belongs to the run in progress ends that run; the next run gets the old updates and "
        "the new one together. `steer`: the run in progress may take it, by `ctx.arrivals()` (docs/conversations.md).",
    )
    control: Control = text(
        ("/stop,/cancel", "none, a comma list of commands such as /stop,/cancel, or module:function"),
        "Updates that end the run in progress in their lanes (docs/conversations.md): these commands, and Telegram's "
        "Stop button. Or those for which your own `module:function` returns true. `none`: nothing ends a run.",
    )
    allowed_updates: Annotated[Kinds | None, NoDecode] = text(
        (None, "a comma list of kinds of update, such as message,callback_query"),
        "Passed to Telegram and checked again on arrival. Unset: Telegram keeps the value that was set last.",
    )
    filter: KindsOrPath | None = text(
        (None, "a comma list of kinds of update, or module:function"),
        "The updates that are accepted: a comma list of kinds, or those for which your own `module:function` returns "
        "true. Other updates are dropped and counted, never stored.",
    )
    poll_timeout: int = number(
        (50, "s", 0, 50), "How long one long poll waits for updates. Telegram's maximum is 50; tests use less."
    )
    poll_retry_max: float = number(
        (30.0, "s", 0.1, 3600.0),
        "The longest wait between two attempts while Telegram fails. The first wait is at most 1 s, and each next one "
        "twice as long. A `retry_after` from Telegram is obeyed, up to an hour; then Telegram is asked again.",
    )
    poll_give_up_after: float | None = number(
        (None, "s", 0.1, 31_536_000.0),
        "When Telegram has failed for this long, the poller ends with exit code 1, so that a supervisor notices. "
        "Unset: it retries without limit.",
    )
    max_pending: int = number(
        (10_000, "updates", 1, 100_000_000),
        "The largest backlog: updates that wait or run. The poller fetches no more than fit, and waits while almost "
        "none fit. Telegram keeps the rest.",
    )
    user_rate: UserRate | None = text(
        (None, "updates/seconds, such as 20/60: 1 to 999999 updates, 0.001 to 99999 seconds"),
        "The most updates that a person may cause (docs/limits.md): `20/60` is 20 at once, and then one in every 3 s. "
        "Counted over all pollers and receivers. Payments and updates of CONTROL are not limited. Unset: no limit.",
    )
    user_rate_by: RateBy = text(
        ("user", "user, chat, or module:function"),
        "Whose updates are counted together: those of a `user` or of a `chat`, or those for which your own "
        "`module:function` returns the same key (None: the update has no limit).",
    )
    user_rate_over: Literal["drop", "delay", "answer"] = text(
        ("drop", "drop, delay or answer"),
        "What becomes of an update over USER_RATE: `drop` drops it, `delay` makes it wait for its turn, and its lane "
        "with it, `answer` calls `Bot(on_limited=…)` for the first one of each such time and drops the others.",
    )
    max_age: float | None = number(
        (None, "s", 0.0, 31_536_000.0),
        "A message, post or edit that has waited longer in its lane is late (docs/limits.md). Unset: none is.",
    )
    max_age_action: Literal["skip", "collect"] = text(
        ("skip", "skip or collect"),
        "What happens to messages that are late: `skip` settles them without running them, `collect` makes those of "
        "one sender one run of at most COLLECT_MAX, with `ctx.is_late`.",
    )
    lease_seconds: float = number(
        (15.0, "s", 1.0, 3600.0),
        "How long a dead worker keeps its updates. With a longer lease they wait longer; with a shorter one, a worker "
        "that is slow but alive may lose its updates.",
    )
    stale: Literal["run", "skip"] = text(
        ("run", "run or skip"),
        "What happens to an update that Telegram no longer accepts an answer to, such as an inline query from 30 s "
        "ago: `run` runs it all the same, `skip` settles it without running it.",
    )
    timer_late: Literal["run", "skip"] = text(
        ("run", "run or skip"),
        "What happens to a timer that is late by more than TIMER_LATE_AFTER, such as after an outage: `run` runs it "
        "all the same, `skip` settles it without running it.",
    )
    timer_late_after: float = number(
        (3600.0, "s", 0.0, 315_360_000.0), "How late a timer may begin, if TIMER_LATE is `skip`."
    )
    session_ttl: float | None = number(
        (None, "s", 1.0, 315_360_000.0), "How long a session is kept after its last change. Unset: without limit."
    )
    update_timeout: float | None = number(
        (None, "s", 0.1, 86_400.0), "Soft limit for one update; its hard limit is 10 s later. Unset: no limit."
    )
    max_attempts: int = number(
        (5, "attempts", 1, 1_000),
        "Failed attempts (or worker deaths) before an update is buried and its lanes continue.",
    )
    retry_backoff: float = number(
        (1.0, "s", 0.0, 60.0),
        "The wait before the second attempt; doubles each time, at most 60 s. Only its own lanes wait.",
    )
    uncertain_call: Literal["repeat", "skip"] = text(
        ("repeat", "repeat or skip"),
        "How to treat a Bot API call or step whose outcome was lost with its worker: `repeat` may make it twice, "
        "`skip` may never make it.",
    )
    flood_wait: float = number(
        (5.0, "s", 0.0, 60.0),
        "How long a call waits in the handler when Telegram answers 429 or a `RATE_…` is used up. For longer waits the "
        "update is parked, which counts no attempt and takes no slot.",
    )
    rate_per_bot: float | None = number(
        (None, "messages/s", 0.01, 100_000.0),
        "The most messages that the bot sends, over all workers. Telegram advises 30. Unset: no limit.",
    )
    rate_per_chat: float | None = number(
        (None, "messages/s", 0.001, 100_000.0),
        "The same for one chat, which may receive 3 at once. Telegram advises 1.",
    )
    rate_per_group: float | None = number(
        (None, "messages/min", 0.01, 1_000_000.0),
        "The same for one group or channel, which may receive 3 at once; in addition to RATE_PER_CHAT. Telegram "
        "advises 20.",
    )
    broadcast_rate: float = number(
        (25.0, "messages/s", 0.1, 1_000.0),
        "How many recipients a broadcast reaches per second (docs/broadcasts.md). More than 30 only with `--paid`.",
    )
    stream_first: int = number(
        (30, "characters", 1, 4096), "`ctx.stream` shows its first text when it has this length, or after 0.5 s."
    )
    typing: Literal["off", "on"] = text(
        ("off", "off or on"),
        "`on`: a chat shows that the bot is typing while a handler runs for longer than 0.5 s (docs/bots.md).",
    )
    webhook_url: WebAddress | None = text(
        (None, "an address with http:// or https://, without a query"), "The public address that Telegram sends to."
    )
    webhook_secret: WebhookSecret | None = text(
        (None, "1 to 256 of A-Z a-z 0-9 _ -"),
        "Telegram sends it with every update to prove its identity. Unset: a secret derived from BOT_TOKEN.",
    )
    webhook_host: str = text(
        ("127.0.0.1", "a host name or address"),
        "The address that the receiver listens on: by default only a local proxy, which does TLS, reaches it.",
    )
    webhook_port: int = number((8080, "", 1, 65_535), "The port that the receiver listens on.")
    webhook_reorder: int = number(
        (100, "ms", 0, 10_000),
        "How long an update received by webhook waits at most for updates with lower ids, which Telegram may send "
        "later. 0: it does not wait.",
    )
    webhook_trusted_proxies: Annotated[Networks, NoDecode, Field(validate_default=True)] = text(
        ("127.0.0.1,::1", "a comma list of addresses and networks, such as 127.0.0.1,10.0.0.0/8"),
        "Proxies whose `X-Forwarded-For` is trusted; from other addresses it is ignored.",
    )
    webhook_networks: Annotated[Networks | None, NoDecode] = text(
        (None, "a comma list of addresses and networks, such as telegram,10.0.0.0/8"),
        "Networks that may send updates; `telegram` stands for Telegram's own. Unset: any client that knows the "
        "secret.",
    )

    fast: Literal["0", "1"] = text(
        ("1", "0 or 1"),
        "`0` runs the worker on Celery's own pools, requests and tracer: slower, with the same guarantees "
        "(docs/fast.md). For finding out whether the replacements cause a problem.",
    )
    log_format: Literal["text", "json"] = text(
        ("text", "text or json"),
        "The format of every process's log: `text`, or `json`, one object per line with ids as fields "
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
        """Only the given values: building a Settings reads nothing. `load` does."""
        return (init_settings,)

    #: The settings of each bot in the file that BOTS names, set by `settings.reading`.
    _many: "tuple[Settings, ...]" = PrivateAttr(())

    @property
    def served(self) -> "tuple[Settings, ...]":
        """The settings of each bot that is served from the start: those of the file that BOTS names, or these. None if
        all bots are added (BOTS_KEY, settings/bots.py).
        """
        if self.bots_key is not None and self.bot_token is None and not self._many:
            return ()
        return self._many or (self,)

    @property
    def bot_name(self) -> str:
        """Its name in the file; empty for the only bot."""
        return ""

    def name_of(self, field: str) -> str:
        """The field's name for messages, as the user wrote it."""
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
        """The prefix of the bot's queues. They share a backlog, and take turns with those of other bots."""
        return "updates"

    @property
    def express_queue(self) -> str:
        """For updates that Telegram expects an answer to within seconds; read before all others."""
        return f"{self.queue_group}.express"

    @property
    def broadcast_queue(self) -> str:
        """For broadcasts; read only while no other queue has ready messages."""
        return f"{self.queue_group.replace('updates', 'broadcasts', 1)}.0"

    @property
    def queue_names(self) -> list[str]:
        return [f"{self.queue_group}.{number}" for number in range(self.queues)]
