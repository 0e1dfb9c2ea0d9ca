"""The exact keys, types and values that this release stores in Redis.

Two releases that run beside each other read each other's data. A change of a stored format fails here; it needs readers
of both forms, or a version. test_mixed_releases.py and test_older_release.py then show that it works. The bytes of
timers, which have a version, are in test_stored_timers.py.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from redis import Redis

from celery_lanes.protocol import (
    DurableAppends,
    Kind,
    Leased,
    Limited,
    NewMessage,
    Paced,
    Set,
    SetNote,
    Store,
    connect,
    keys,
    script,
)
from chatlanes.bot.calls.journal import _noted
from chatlanes.bot.calls.questions import ASKED, Question
from chatlanes.bot.calls.run_calls import fingerprint
from chatlanes.bot.schedules import ScheduleRecord, owner_of
from chatlanes.bot.session import encode
from chatlanes.bot.stored import redis_key
from chatlanes.broadcasts import Broadcasts, Call, Feeder, Reason
from chatlanes.outbox import Outbox, State, call_of, ending
from chatlanes.poller.leader_election import LEADER
from chatlanes.settings import Settings, load
from chatlanes.telegram.client import prepare
from chatlanes.telegram.errors import BlockedByUser
from chatlanes.telegram.flood.keys import ask_keys, keys_of, refused_keys
from chatlanes.updates.added_bots import BotRecord, Registry, new_key
from chatlanes.updates.intake import Intake
from tests.pipeline.older_release import dump

AT_MS, LEASE_MS = 4_102_444_800_000, 3_600_000
#: A time of Redis' clock, by its digits.
CLOCK = {10: "<s>", 13: "<ms>", 16: "<us>"}
TIME = re.compile(r"\b1[6-9]\d{8}(?:\d{3}|\d{6})?\b")
#: Totals, the identity of the database, and wake-ups: not part of any of these formats.
BESIDE = (keys.COUNTS, keys.IDENTITY, keys.SETTLED, keys.BELL)


def settings_of(**given: str) -> Settings:
    return load({"BOT_TOKEN": "7:secret", "QUEUES": "1", **given}, env_file=None)


def update(number: int) -> dict[str, Any]:
    chat = {"id": 5, "type": "private"}
    return {"update_id": number, "message": {"message_id": number, "chat": chat, "from": {"id": 5}, "text": "hé"}}


def lease(store: Store, queue: str = "updates.0") -> Leased:
    [leased] = store.turn([queue], holder="east:1:a", lease_ms=LEASE_MS, room=1).leased
    return leased


def run(redis: Redis) -> tuple[Store, str, str]:
    """An update that a worker runs. Returns its id and its fence."""
    Intake(redis, settings_of()).append([update(1)])
    leased = lease(Store(redis))
    return Store(redis), leased.id, leased.fence


# -- each leaves its state in Redis


def schedule(redis: Redis) -> None:
    record = ScheduleRecord("0 9 * * *", "Europe/Berlin", AT_MS, AT_MS)
    assert Store(redis).advance(owner_of(7), "digest", known=b"", record=record.encode())


def running_broadcast(redis: Redis) -> None:
    """One recipient waits in its lane; one was returned by a worker."""
    feeder, store = Feeder(Store(redis), settings_of()), Store(redis)
    feeder.broadcasts.store("b1", Call("sendMessage", {"text": "hé"}), [5, -6], 0.5)
    feeder.feed("b1")  # begins it
    redis.hset("broadcast:7:b1", "fed_us", 0)
    feeder.feed("b1")
    message = lease(store, "broadcasts.0")
    store.commit(message.id, message.fence, feeder.broadcasts.returned("b1", 0, 5))


def ended_broadcast(redis: Redis) -> None:
    running_broadcast(redis)
    store, broadcasts = Store(redis), Broadcasts(redis, 7)
    message = lease(store, "broadcasts.0")
    store.commit(message.id, message.fence, broadcasts.result("b1", -6, Reason.REFUSED, "Bad Request: no"))
    broadcasts.set_state("b1", "paused", only_from=("running",), why="by hand")
    broadcasts.end(broadcasts.progress("b1"), "cancelled", {Reason.DROPPED: 1})


def interrupted_group(redis: Redis) -> None:
    intake = Intake(redis, settings_of(COLLECT="messages", INTERRUPT="on"))
    intake.append([update(1)])
    redis.zadd(keys.COLLECTING, {"7:1": 1})  # it is due
    lease(Store(redis))
    intake.append([update(2)])


def stopped_run(redis: Redis) -> None:
    """A /stop arrived during a run."""
    run(redis)
    stop = update(2)
    stop["message"]["text"] = "/stop"
    Intake(redis, settings_of()).append([stop])
    redis.delete(keys.body("7:2"), keys.message("7:2"))


def paced(redis: Redis) -> None:
    """Two messages of lanes with rates; the first has run."""
    store, lanes = Store(redis), [Paced("a", "1/h"), "b", Paced("c", "10/m")]
    store.append([NewMessage(name, "q", "x", lanes) for name in ("m1", "m2")])
    message = lease(store, "q")
    store.commit(message.id, message.fence, [])


def limited(redis: Redis) -> None:
    """Two messages with the same limits, of which the first has permits."""
    lanes = ["a", Limited("y", 3), Limited("x", 1)]
    Store(redis).append([NewMessage(f"m{n}", "q", "x", [*lanes[n - 1 :], Paced("p", "1/h")]) for n in (1, 2)])


def session(redis: Redis) -> None:
    store, *message = run(redis)
    store.commit(*message, [Set(redis_key("7", "chat:5"), encode({"n": 1, "é": [None, 0.5]}), LEASE_MS)])


def dead_letter(redis: Redis) -> None:
    store, *message = run(redis)
    store.bury(*message, {"type": "ValueError", "message": "né"})


def journal(redis: Redis) -> None:
    store, *message = run(redis)
    call = {"position": "1", "what": f"sendMessage:{fingerprint(prepare('sendMessage', {'chat_id': 5, 'text': 'hé'}))}"}
    store.begin(*message, lease_ms=LEASE_MS, **call)
    store.end(*message, **call, kind=Kind.DONE, outcome=_noted({"message_id": 3, "text": "hé"}))
    store.begin(*message, lease_ms=LEASE_MS, position="b1", what="sendMessage:1f")


def flood_control(redis: Redis) -> None:
    store, names = Store(redis), keys_of("7", "5")
    rates = {"bot_us": 50_000, "slack_us": 0, "chat_us": LEASE_MS * 1000, "group_us": 0}
    ask = script("ask", "chatlanes.telegram.flood")
    store.run(ask.command(ask_keys(names, "sendMessage"), cost=1, longest_wait_us=0, **rates, burst=1, waited_ms=3))
    refused = script("refused", "chatlanes.telegram.flood")
    store.run(refused.command(refused_keys(names), scope="5", wait_ms=LEASE_MS))


def leader(redis: Redis) -> None:
    """Which poller leads. The offset is not stored: Telegram keeps it."""
    take = script("take", "chatlanes.poller")
    Store(redis).run(take.command([LEADER % 7], (), fence="", holder="east:1", lease_ms=LEASE_MS))


def added_bots(redis: Redis) -> None:
    """One that is served, and one that was removed with what waited for it."""
    registry = Registry(redis, load({"BOTS_KEY": new_key()}, None))
    registry.put(7, BotRecord("gAAA", "tenants:hé", "ann_bot", 5))
    registry.remove(8, drop=True)


# -- the state


def stored(described: str, content: str) -> str:
    """A stored message (envelope.py)."""
    head = f'{{"headers":{{"task":"tasks.update","argsrepr":"({described})"}}}}\n'
    return f'{head}[[{content}],{{}},{{"callbacks":null,"errbacks":null,"chain":null,"chord":null}}]'


def stored_update(number: int) -> str:
    chat = '"chat":{"id":5,"type":"private"},"from":{"id":5},"text":"hé"'
    content = f'{{"update_id":{number},"message":{{"message_id":{number},{chat}}}}}'
    return stored(f"message, chat 5, update {number}", content)


SEEN = {"lanes:seen:7:0": ("string", "@")}
PLACE = {"lanes": "7/chat:5", "queue": "updates.0", "seq": "<us>", "fence": "<us>"}
JOINED = {"lanes:lane:7/chat:5": ("zset", {"7:1": "<us>"}), "lanes:pending:updates": ("zset", {"7:1": "<us>"})}
BROADCAST = {
    "rate": "0.5",
    "total": "2",
    "fence": "2:0",
    "started_ms": "<ms>",
    "fed_us": "<us>",
    "refused": "0",
    "slow": "0",
    "slow_us": "0",
}
BROADCAST_KEPT = {
    "broadcast-call:7:b1": ("string", '{"method": "sendMessage", "params": {"text": "h\\u00e9"}, "handler": ""}'),
    "broadcasts:7": ("zset", {"b1": "<ms>"}),
}


def open_question(redis: Redis) -> None:
    """As ctx.ask leaves it (tasks/questions.py)."""
    asked = Question("1-1", "hé?", {}, ["Yes"], "pass", 5, [], {"message_id": 3}, 60.0, ["No", None])
    asked.calls = {"1": ["done", "sendMessage:1f", {}, True]}
    store, id_, fence = run(redis)
    store.commit(id_, fence, [Set(f"{ASKED}7:1-1", asked.stored()), SetNote("7/chat:5", "1-1")])


def waiting_call(redis: Redis) -> None:
    outbox = Outbox(settings_of())
    outbox._idle.append(DurableAppends(redis))
    outbox.append(call_of(outbox.settings, -6, "sendMessage", "a", {"text": "hé"}))


def ended_call(redis: Redis) -> None:
    waiting_call(redis)
    message, error = lease(Store(redis)), BlockedByUser("sendMessage", -6, "Forbidden: bot was blocked", 403)
    writes = ending(message.id, AT_MS, State.REFUSED, error=error, why=error.description)
    Store(redis).commit(message.id, message.fence, writes)


CALL_ID = "7:send:cb784b527ee1354bf33b070755d739f6"


class Golden(NamedTuple):
    leave: Callable[[Redis], None]
    #: The version of the format, or why it needs none.
    version: str
    state: dict[str, tuple[str, Any]]


GOLDEN = [
    Golden(
        schedule,
        "none: a record that a release cannot read is made again, with a log line (tasks/schedules.py)",
        {
            "lanes:schedules": (
                "hash",
                {
                    "7/schedules\ndigest": '{"cron": "0 9 * * *", "tz": "Europe/Berlin", '
                    f'"after_ms": {AT_MS}, "last_ms": {AT_MS}}}'
                },
            )
        },
    ),
    Golden(
        running_broadcast,
        "none: unknown fields are ignored, and those that were added later have defaults (BroadcastProgress.of)",
        {
            **BROADCAST_KEPT,
            "broadcast:7:b1": ("hash", {**BROADCAST, "state": "running"}),
            "broadcast-chunk:7:b1:0": ("string", "5\n-6"),
            "broadcast-returned:7:b1": ("list", ["0 5"]),
            "broadcasts-feeding:7": ("zset", {"b1": "<ms>"}),
            "broadcasts.0": ("list", ["7:broadcast:b1:1"]),
            "lanes:body:7:broadcast:b1:1": (
                "string",
                stored("broadcast b1, chat -6", '{"broadcast":{"id":"b1","number":1,"chat":{"id":-6}}}'),
            ),
            "lanes:lane:7/chat:-6": ("zset", {"7:broadcast:b1:1": "<us>"}),
            "lanes:message:7:broadcast:b1:1": (
                "hash",
                {"lanes": "7/chat:-6", "queue": "broadcasts.0", "seq": "<us>", "state": "ready", "unstoppable": "1"},
            ),
            "lanes:pending:broadcasts": ("zset", {"7:broadcast:b1:1": "<us>"}),
        },
    ),
    Golden(
        ended_broadcast,
        "none: as above; counts have the names of the reasons, and an unknown reason is not counted",
        {
            **BROADCAST_KEPT,
            "broadcast:7:b1": (
                "hash",
                {
                    **BROADCAST,
                    "state": "cancelled",
                    "ended_ms": "<ms>",
                    "why": "by hand",
                    "wrong_before": "1",
                    "count:dropped": "1",
                    "count:refused": "1",
                },
            ),
            "broadcast-missed:7:b1": ("list", ["-6\trefused\tBad Request: no"]),
        },
    ),
    Golden(
        interrupted_group,
        "none: the first byte says that a stored message is a group",
        {
            **JOINED,
            "lanes:body:7:1": ("string", f"\x1d{stored_update(1)}\x1d{stored_update(2)}"),
            "lanes:collecting": ("zset", {"7:1": "<ms>"}),
            "lanes:message:7:1": (
                "hash",
                {
                    **PLACE,
                    "state": "collecting",
                    "size": "2",
                    "interrupted": "1",
                    "open": "<ms>",
                    "group": "700 5000 20 1 messages::5::5",
                },
            ),
            "lanes:seen:7:0": ("string", "`"),
        },
    ),
    Golden(
        stopped_run,
        "none: a release that does not know the field `stopped` runs the message again",
        {
            "lanes:body:7:1": ("string", stored_update(1)),
            "lanes:lane:7/chat:5": ("zset", {"7:1": "<us>", "7:2": "<us>"}),
            "lanes:message:7:1": ("hash", {**PLACE, "state": "ready", "interrupted": "1", "stopped": "<us>"}),
            "lanes:pending:updates": ("zset", {"7:1": "<us>", "7:2": "<us>"}),
            "lanes:seen:7:0": ("string", "`"),
            "updates.0": ("list", ["7:1"]),
        },
    ),
    Golden(
        paced,
        "none: no key begins with \\x1f; a release that does not know the rates leaves such messages to a newer one",
        {
            "lanes:body:m2": ("string", "x"),
            "lanes:delayed": ("zset", {"m2": "<ms>"}),
            **{f"lanes:lane:{key}": ("zset", {"m2": "<us>"}) for key in "abc"},
            "lanes:message:m2": (
                "hash",
                {"lanes": "a\nb\nc\n\x1f3600000 0 6000", "queue": "q", "seq": "<us>", "state": "delayed"},
            ),
            "lanes:paces": ("zset", {"a": "<ms>", "c": "<ms>"}),
            "lanes:pending:q": ("zset", {"m2": "<us>"}),
        },
    ),
    Golden(
        limited,
        "none: no key begins with \\x1c; a release that does not know limits leaves such messages to a newer one",
        {
            **{f"lanes:body:m{n}": ("string", "x") for n in (1, 2)},
            "lanes:lane:a": ("zset", {"m1": "<us>"}),
            "lanes:lane:p": ("zset", {"m1": "<us>", "m2": "<us>"}),
            "lanes:limit:x": ("zset", {"m1": "-<us>"}),
            "lanes:limit:y": ("zset", {"m1": "-<us>"}),
            "lanes:message:m1": (
                "hash",
                {"lanes": "a\np\n\x1c1 x\n\x1c3 y\n\x1f0 3600000", "queue": "q", "seq": "<us>", "state": "ready"},
            ),
            "lanes:message:m2": (
                "hash",
                {"lanes": "p\n\x1c1 x\n\x1c3 y\n\x1f3600000", "queue": "q", "seq": "<us>", "state": "waiting"},
            ),
            "lanes:pending:q": ("zset", {"m1": "<us>", "m2": "<us>"}),
            "q": ("list", ["m1"]),
        },
    ),
    Golden(
        session,
        "none: it is the bot's own data, as JSON",
        {**SEEN, "session:7/chat:5": ("string", '{"n":1,"é":[null,0.5]}')},
    ),
    Golden(
        dead_letter,
        "none: a problem is a JSON object, read by its fields",
        {
            **SEEN,
            "lanes:body:7:1": ("string", stored_update(1)),
            "lanes:dead": ("zset", {"7:1": "<ms>"}),
            "lanes:errors:7:1": ("list", ['{"at_ms": <ms>, "type": "ValueError", "message": "n\\u00e9"}']),
            "lanes:message:7:1": ("hash", {**PLACE, "state": "buried"}),
        },
    ),
    Golden(
        journal,
        "none: an entry names its call by a hash, so that of another call is recognised (Noted.DIFFERENT)",
        {
            **SEEN,
            **JOINED,
            "lanes:body:7:1": ("string", stored_update(1)),
            "lanes:journal:7:1": (
                "hash",
                {
                    "1": 'done <us> sendMessage:56de461211d9edfd42070795bcf799c9 {"message_id":3,"text":"hé"}',
                    "last": "1",
                    "b1": "begun <us> sendMessage:1f ",
                    "blast": "1",
                },
            ),
            "lanes:leases": ("zset", {"7:1": "<ms>"}),
            "lanes:message:7:1": ("hash", {**PLACE, "state": "leased", "holder": "east:1:a"}),
        },
    ),
    Golden(
        flood_control,
        "none: all but the counts expire with the pause or the rate that they describe",
        {
            "flood:7:5": ("string", "3600000"),
            "flood-counts:7": ("hash", {"refused": "1", "waits": "1", "waited_ms": "3"}),
            "flood-rate:7": ("hash", {"at": "<us>", "next": "<us>"}),
            "flood-rate:7:5": ("hash", {"at": "<us>", "chat": "<us>"}),
            "flood-refused:7": ("set", ["5"]),
            "flood-waits:7": ("zset", {"5": "<ms>"}),
        },
    ),
    Golden(
        open_question,
        "none: an older release takes the answer for an ordinary message; a field that a newer one adds has a default",
        {
            "asked:7:1-1": (
                "string",
                '{"id":"1-1","text":"hé?","params":{},"buttons":["Yes"],"unrelated":"pass","user":5,"updates":[],'
                '"sent":{"message_id":3},"timeout_s":60.0,"answers":["No",null],"calls":{"1":["done","sendMessage:1f",{},true]}}',
            ),
            "lanes:notes": ("hash", {"7/chat:5": "1-1"}),
            **SEEN,
        },
    ),
    Golden(
        waiting_call,
        "none: the content has the form of an update, whose kind an older release does not know (docs/outbox.md)",
        {
            f"sending:{CALL_ID}": ("hash", {"fence": "appended"}),
            f"lanes:body:{CALL_ID}": (
                "string",
                stored(
                    "send sendMessage, chat -6",
                    '{"send":{"method":"sendMessage","params":{"chat_id":-6,"text":"h\\u00e9"},"chat":{"id":-6}}}',
                ),
            ),
            "lanes:lane:7/chat:-6": ("zset", {CALL_ID: "<us>"}),
            f"lanes:message:{CALL_ID}": (
                "hash",
                {"lanes": "7/chat:-6", "queue": "updates.0", "seq": "<us>", "state": "ready", "unstoppable": "1"},
            ),
            "lanes:pending:updates": ("zset", {CALL_ID: "<us>"}),
            "updates.0": ("list", [CALL_ID]),
        },
    ),
    Golden(
        ended_call,
        "none: unknown fields are ignored, and an error of an unknown class is a BotApiError",
        {
            f"sent:{CALL_ID}": (
                "string",
                f'{{"state":"refused","ended_ms":{AT_MS},"result":null,"error":{{"kind":"BlockedByUser",'
                '"method":"sendMessage","chat":-6,"description":"Forbidden: bot was blocked","code":403},'
                '"why":"Forbidden: bot was blocked"}',
            )
        },
    ),
    Golden(
        added_bots,
        "`v` of a record: a process does not serve one of a newer version, and says so",
        {
            "bots:added": (
                "hash",
                {
                    "7": '{"v": 1, "token": "gAAA", "bot": "tenants:h\\u00e9", "username": "ann_bot", "added_ms": 5, '
                    '"is_removed": false}',
                    "8": '{"v": 1, "token": "", "bot": "", "username": "", "added_ms": 0, "is_removed": true}',
                },
            ),
            "bots:changes": ("string", "2"),
        },
    ),
    Golden(
        leader,
        "none: a poller that takes the lead writes all of it",
        {"poller:7:leader": ("hash", {"fence": "<us>", "holder": "east:1", "until_ms": "<ms>"})},
    ),
]


def read(redis: Redis) -> dict[str, tuple[str, Any]]:
    """The state without BESIDE, with times replaced; compressed recipients as they were before (zlib's bytes vary)."""
    state: dict[str, tuple[str, Any]] = {}
    for key, (kind, value) in dump(redis).items():
        if key.startswith("broadcast-chunk:"):
            value = zlib.decompress(value.encode("latin-1")).decode("latin-1")
        if not key.startswith(BESIDE):
            state[key] = kind, _without_times(value)
    return state


def _without_times(value: Any) -> Any:
    match value:
        case dict():
            return {field: _without_times(each) for field, each in value.items()}
        case list():
            return [_without_times(each) for each in value]
        case float():
            return _without_times(f"{value:.10g}" if abs(value) < 1e10 else f"{value:.0f}")
    return TIME.sub(lambda found: CLOCK[len(found[0])], value.encode("latin-1").decode(errors="replace"))


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.leave.__name__)
def test_stored_format(redis_url: str, golden: Golden) -> None:
    with connect(redis_url) as redis:
        golden.leave(redis)
        assert read(redis) == golden.state, golden.version
