"""The bots that were added while the deployment runs: their records in Redis, with sealed tokens (BOTS_KEY).

Guarantees that a token is stored only encrypted, and that the record of one bot cannot serve as another's. A record is
written in one step with the counter of changes, so that a process which reads that counter misses no change. Does not
limit who adds bots: any process with REDIS_URL and BOTS_KEY may.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from chatlanes.logs.redaction import learn
from chatlanes.settings import Settings, SettingsError
from chatlanes.settings.bots import AddedBot
from chatlanes.updates.connection import connect_to

log = logging.getLogger("poller")

#: hash: bot id -> BotRecord, as JSON
ADDED = "bots:added"
#: The number of changes of ADDED.
CHANGES = "bots:changes"

#: How often each process reads the number of changes.
LOOK_EVERY_S = 1.0
ANSWER_WITHIN_S = 2.0

NO_KEY = (
    "BOTS_KEY is not set: write the key that `chatlanes lanes bots key` prints into the environment or into .env of "
    "every process, so that tokens can be sealed"
)
NO_PACKAGE = "BOTS_KEY needs the package cryptography: pip install 'chatlanes[bots]'"


class NotOpenedError(Exception):
    """A token that cannot be opened. One sentence that says what to do."""


@dataclass(frozen=True)
class BotRecord:
    """The stored fields of a bot. `is_removed`: it was removed with its updates, which workers settle unrun."""

    token: str = ""
    bot: str = ""
    username: str = ""
    added_ms: int = 0
    is_removed: bool = False

    def encode(self) -> str:
        return json.dumps({"v": 1, **asdict(self)})

    @classmethod
    def decode(cls, stored: bytes) -> BotRecord:
        """Raises ValueError for one of a newer release."""
        fields = json.loads(stored)
        if fields.pop("v") != 1:
            raise ValueError("it is of a newer release")
        return cls(**fields)


def read_record(bot_id: int, stored: bytes) -> BotRecord:
    """Raises NotOpenedError."""
    try:
        return BotRecord.decode(stored)
    except (ValueError, TypeError, KeyError) as error:
        raise NotOpenedError(f"the record of added bot {bot_id} cannot be read: add the bot again") from error


class Seals:
    """Seals tokens with the first key of BOTS_KEY, and opens those of any of its keys."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError without BOTS_KEY, or without the package that encrypts."""
        if settings.bots_key is None:
            raise SettingsError(NO_KEY)
        try:
            from cryptography.fernet import Fernet, MultiFernet
        except ImportError:
            raise SettingsError(NO_PACKAGE) from None
        self._keys = MultiFernet([Fernet(key) for key in settings.bots_key.get_secret_value().split(",")])

    def seal(self, token: str) -> str:
        return self._keys.encrypt(token.encode()).decode()

    def open(self, sealed: str, bot_id: int) -> str:
        """The token, which no log line of this process shows from now on. Raises NotOpenedError."""
        from cryptography.fernet import InvalidToken

        try:
            token = self._keys.decrypt(sealed.encode()).decode()
        except InvalidToken:
            token = ""
        if not token:
            raise NotOpenedError(
                f"the token of added bot {bot_id} was sealed with another key: write that key into BOTS_KEY too, after "
                "a comma, or add the bot again"
            )
        if token.partition(":")[0] != str(bot_id):
            raise NotOpenedError(f"the record of added bot {bot_id} has the token of another bot: add the bot again")
        learn(token)
        return token


def new_key() -> str:
    """Raises SettingsError without the package that encrypts."""
    try:
        from cryptography.fernet import Fernet
    except ImportError:
        raise SettingsError(NO_PACKAGE) from None
    return Fernet.generate_key().decode()


class Registry:
    """Reads and writes the records. All methods may raise RedisError."""

    def __init__(self, client: Redis, settings: Settings) -> None:
        """Raises SettingsError."""
        self.client = client
        self._settings = settings
        self.seals = Seals(settings)
        #: The ids of the bots of BOT_TOKEN or BOTS.
        self.configured = {each.bot_id for each in settings.served if each.bot_token}

    @classmethod
    def connect(cls, settings: Settings) -> Registry:
        return cls(connect_to(settings, ANSWER_WITHIN_S), settings)

    def close(self) -> None:
        self.client.close()

    def changes(self) -> bytes:
        found: Any = self.client.get(CHANGES)
        return found or b""

    def stored(self, bot_id: int) -> bytes | None:
        found: Any = self.client.hget(ADDED, str(bot_id))
        return found

    def all_stored(self) -> dict[int, bytes]:
        found: Any = self.client.hgetall(ADDED)
        return {int(bot_id): record for bot_id, record in sorted(found.items(), key=lambda each: int(each[0]))}

    def records(self) -> dict[int, BotRecord]:
        """Those of bots that are served. Raises NotOpenedError."""
        read = {bot_id: read_record(bot_id, stored) for bot_id, stored in self.all_stored().items()}
        return {bot_id: record for bot_id, record in read.items() if not record.is_removed}

    def put(self, bot_id: int, record: BotRecord) -> None:
        self._change(lambda step: step.hset(ADDED, str(bot_id), record.encode()))

    def seal_again(self, bot_id: int) -> None:
        """Seals its token with the first key, unless the bot is removed meanwhile. Raises NotOpenedError."""

        def seal(step: Any) -> None:
            stored = step.hget(ADDED, str(bot_id))
            record = read_record(bot_id, stored) if stored else BotRecord(is_removed=True)
            step.multi()
            if not record.is_removed:
                token = self.seals.open(record.token, bot_id)
                step.hset(ADDED, str(bot_id), replace(record, token=self.seals.seal(token)).encode())
                step.incr(CHANGES)

        self.client.transaction(seal, ADDED)

    def remove(self, bot_id: int, *, drop: bool) -> None:
        """Without `drop` nothing is stored of it any more, and its updates are kept."""
        if drop:
            self.put(bot_id, BotRecord(is_removed=True))
        else:
            self._change(lambda step: step.hdel(ADDED, str(bot_id)))

    def _change(self, write: Any) -> None:
        with self.client.pipeline(transaction=True) as step:
            write(step)
            step.incr(CHANGES)
            step.execute()

    def settings_of(self, bot_id: int, stored: bytes) -> AddedBot | None:
        """The settings of an added bot; None if it was removed. Raises NotOpenedError."""
        record = read_record(bot_id, stored)
        if record.is_removed:
            return None
        return AddedBot.of(
            self._settings, self.seals.open(record.token, bot_id), record.bot, record.username, record.added_ms
        )


class Followed:
    """The added bots as this process knows them, read again within LOOK_EVERY_S of a change. One that is a bot of
    BOT_TOKEN or BOTS too is left out: its updates would be fetched twice, with two orders.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.served: dict[int, AddedBot] = {}
        self._stored: dict[int, bytes] = {}
        self._changes: bytes | None = None
        self._is_redis_down = False

    def look(self) -> bool:
        """True if something changed. While Redis does not answer, the bots stay as they are known."""
        try:
            changes = self.registry.changes()
            if changes == self._changes:
                return False
            stored = self.registry.all_stored()
        except (RedisError, OSError) as error:
            if not self._is_redis_down:
                log.warning("added bots: Redis does not answer: %s. They stay as they were", error)
            self._is_redis_down = True
            return False
        self._is_redis_down = False
        self.served = {bot_id: bot for bot_id in stored if (bot := self._known(bot_id, stored[bot_id]))}
        self._stored, self._changes = stored, changes
        return True

    def _known(self, bot_id: int, stored: bytes) -> AddedBot | None:
        """The same object as before if nothing has changed."""
        before = self.served.get(bot_id)
        if self._stored.get(bot_id) == stored:
            return before
        try:
            bot = self.registry.settings_of(bot_id, stored)
        except NotOpenedError as error:
            log.error("%s", error)
            return None
        if bot is not None and bot_id in self.registry.configured:
            log.error(
                "bot %d is served by BOT_TOKEN or BOTS, and was added too. The added one is ignored; to delete it, run "
                "`chatlanes lanes bots remove %d`",
                bot_id,
                bot_id,
            )
            return None
        return before if before and bot and before.version == bot.version else bot


def added_ids(client: Redis) -> list[int]:
    """The ids of the added bots. Opens no token. Raises RedisError."""
    found: Any = client.hgetall(ADDED)
    return sorted(int(bot_id) for bot_id, record in found.items() if not json.loads(record).get("is_removed"))


def added_bot(settings: Settings, bot_id: str) -> AddedBot | None:
    """The added bot of this id; None if there is none, or no BOTS_KEY.

    Raises NotOpenedError, RedisError, SettingsError.
    """
    if settings.bots_key is None or not bot_id.isdecimal():
        return None
    with closing(Registry.connect(settings)) as registry:
        stored = registry.stored(int(bot_id))
        return None if stored is None else registry.settings_of(int(bot_id), stored)


def served_now(settings: Settings) -> list[AddedBot]:
    """The added bots at this moment; none without BOTS_KEY. Raises RedisError, SettingsError. One whose token cannot be
    opened is logged, and left out.
    """
    if settings.bots_key is None:
        return []
    with closing(Registry.connect(settings)) as registry:
        registry.changes()  # raises; `look` does not
        followed = Followed(registry)
        followed.look()
    return list(followed.served.values())


def now_ms() -> int:
    return round(time.time() * 1000)
