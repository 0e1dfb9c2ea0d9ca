"""Intake of a batch: messages in their lanes, on real servers; and the reported durability."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_lanes.embedded_server import Server, start_server
from celery_lanes.errors import ServerUnfit
from celery_lanes.protocol import Appended, Durable, connect, durable, keys
from celery_lanes.protocol.envelope import unpack
from chatlanes.settings import Settings, SettingsError, load
from chatlanes.settings.imports import ImportPathError
from chatlanes.updates.intake import TASK, Intake
from chatlanes.updates.parsing import read
from tests.conftest import DEBIAN_REDIS
from tests.support.waiting_server import believe

BOT_ID = 123456


def settings_of(url: str, **given: object) -> Settings:
    env = {"BOT_TOKEN": f"{BOT_ID}:SECRET", "REDIS_URL": url, **{name: str(value) for name, value in given.items()}}
    return load(env, env_file=None)


@contextmanager
def connected(url: str, **given: object) -> Iterator[Intake]:
    intake = Intake.connect(settings_of(url, **given))
    try:
        yield intake
    finally:
        intake.close()


@pytest.fixture
def intake(client: Redis, any_server: Server) -> Iterator[Intake]:
    """On each kind of server in turn, emptied."""
    with connected(any_server.url) as each:
        yield each


def message(update_id: Any, chat: int = 7, **more: Any) -> dict[str, Any]:
    return {"update_id": update_id, "message": {"chat": {"id": chat}, "from": {"id": chat}, "text": "hi", **more}}


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def record(client: Redis, message_id: str) -> dict[str, str]:
    return {text(field): text(value) for field, value in client.hgetall(keys.message(message_id)).items()}


def stored(client: Redis, message_id: str) -> dict[str, Any]:
    """The Celery message that a worker will get."""
    lane = {"failed": 0, "died": 0}
    return unpack(client.get(keys.body(message_id)) or b"", message_id=message_id, queue="q", tag="t", lane=lane)


def content(client: Redis, message_id: str) -> Any:
    """The update that its task will get."""
    [update], kwargs, _ = json.loads(stored(client, message_id)["body"])
    assert kwargs == {}
    return update


def dead(client: Redis) -> list[str]:
    return [text(each) for each in client.zrange(keys.DEAD, 0, -1)]


def problem(client: Redis, message_id: str) -> dict[str, Any]:
    [only] = client.lrange(keys.errors(message_id), 0, -1)
    return dict(json.loads(only))


def lane(client: Redis, key: str) -> list[str]:
    return [text(each) for each in client.zrange(keys.lane(key), 0, -1)]


# -- appended messages


def test_update_joins_the_lane_of_its_chat(intake: Intake, client: Redis) -> None:
    first, second = message(10), message(11)
    assert intake.append([first, second]) == Appended(added=2, seen=0, buried=0, pending=2)
    found = record(client, f"{BOT_ID}:10")
    assert (found["state"], found["lanes"]) == ("ready", f"{BOT_ID}/chat:7")
    assert record(client, f"{BOT_ID}:11")["state"] == "waiting"
    assert lane(client, f"{BOT_ID}/chat:7") == [f"{BOT_ID}:10", f"{BOT_ID}:11"]
    assert client.lrange(found["queue"], 0, -1) == [f"{BOT_ID}:10".encode()]
    assert content(client, f"{BOT_ID}:10") == first


def test_payment_takes_the_express_queue(intake: Intake, client: Redis) -> None:
    intake.append([{"update_id": 10, "pre_checkout_query": {"id": "p", "from": {"id": 7}}}, message(11)])
    found = record(client, f"{BOT_ID}:10")
    assert (found["queue"], found["lanes"]) == ("updates.express", f"{BOT_ID}/chat:7")
    assert lane(client, f"{BOT_ID}/chat:7") == [f"{BOT_ID}:10", f"{BOT_ID}:11"]


def test_task_headers_contain_no_message_text(intake: Intake, client: Redis) -> None:
    intake.append([message(10, text="private words")])
    headers = stored(client, f"{BOT_ID}:10")["headers"]
    assert (headers["task"], headers["id"]) == (TASK, f"{BOT_ID}:10")
    assert (headers["argsrepr"], headers["kwargsrepr"]) == ("(message, chat 7, update 10)", "{}")
    assert "private" not in str(headers)


def test_task_name_matches_the_intake() -> None:
    from chatlanes.tasks.update import TASK as NAME

    assert NAME == TASK


def test_update_joins_every_lane_of_its_order(client: Redis, any_server: Server) -> None:
    with connected(any_server.url, ORDER_BY="chat+user") as intake:
        intake.append([message(1, -5, **{"from": {"id": 9}}), message(2, -6, **{"from": {"id": 9}})])
    assert lane(client, f"{BOT_ID}/user:9") == [f"{BOT_ID}:1", f"{BOT_ID}:2"]
    assert lane(client, f"{BOT_ID}/chat:-5") == [f"{BOT_ID}:1"]
    assert record(client, f"{BOT_ID}:2")["state"] == "waiting"


def test_updates_without_keys_are_spread_over_queues(intake: Intake, client: Redis) -> None:
    intake.append([{"update_id": number} for number in range(50)])
    found = [record(client, f"{BOT_ID}:{number}") for number in range(50)]
    assert {each["state"] for each in found} == {"ready"}
    assert {each["queue"] for each in found} == {f"updates.{n}" for n in range(8)}


@pytest.mark.parametrize("queues", [1, 2, 1024])
def test_chat_always_uses_one_queue(client: Redis, any_server: Server, queues: int) -> None:
    with connected(any_server.url, QUEUES=queues) as intake:
        intake.append([message(number, chat=number % 7) for number in range(70)])
    used = {record(client, f"{BOT_ID}:{number}")["queue"] for number in range(70)}
    assert used <= {f"updates.{n}" for n in range(queues)}
    for chat in range(7):
        assert len({record(client, f"{BOT_ID}:{n}")["queue"] for n in range(70) if n % 7 == chat}) == 1


def test_two_bots_in_one_redis_share_neither_ids_nor_chats(client: Redis, any_server: Server) -> None:
    with connected(any_server.url) as one, connected(any_server.url, BOT_TOKEN="99:OTHER") as other:
        one.append([message(10)])
        assert other.append([message(10)]) == Appended(added=1, seen=0, buried=0, pending=2)
    assert record(client, "99:10")["state"] == "ready"
    assert lane(client, "99/chat:7") == ["99:10"]


# -- duplicates


def test_seen_ids_are_dropped_in_and_between_batches(intake: Intake, client: Redis) -> None:
    assert intake.append([message(10), message(10)]) == Appended(added=1, seen=1, buried=0, pending=1)
    assert intake.append([message(9), message(10), message(11)]) == Appended(added=2, seen=1, buried=0, pending=3)
    assert lane(client, f"{BOT_ID}/chat:7") == [f"{BOT_ID}:10", f"{BOT_ID}:9", f"{BOT_ID}:11"]


def test_seen_ids_are_dropped_after_settling(intake: Intake, client: Redis) -> None:
    intake.append([message(10)])
    client.delete(keys.message(f"{BOT_ID}:10"), keys.body(f"{BOT_ID}:10"), keys.lane(f"{BOT_ID}/chat:7"))
    assert intake.append([message(10)]).seen == 1


def test_empty_batch(intake: Intake) -> None:
    assert intake.append([]) == Appended(added=0, seen=0, buried=0, pending=0)


def test_backlog_excludes_buried_updates(intake: Intake) -> None:
    assert intake.pending() == 0
    assert intake.append([message(1), "no update", message(2)]).pending == 2
    assert intake.pending() == 2


# -- malformed updates

MALFORMED = {
    "a text": "hello",
    "nothing": None,
    "a number": 7,
    "a list": [message(1)],
    "an empty object": {},
    "no id": {"message": {"chat": {"id": 7}}},
    "a bool": {"update_id": True},
    "a fraction": {"update_id": 1.0},
    "a text id": {"update_id": "1"},
    "a negative id": {"update_id": -1},
    "an id beyond Lua": {"update_id": 2**53},
    "an id beyond 64 bits": {"update_id": 2**80},
    "half a surrogate pair": ["\ud800"],
}


@pytest.mark.parametrize("odd", MALFORMED.values(), ids=MALFORMED.keys())
def test_invalid_update_is_buried_unchanged(intake: Intake, client: Redis, odd: Any) -> None:
    assert intake.append([message(1), odd, message(2)]) == Appended(added=3, seen=0, buried=1, pending=2)
    [buried] = dead(client)
    assert buried.startswith(f"{BOT_ID}:malformed:")
    assert problem(client, buried)["type"] == "MalformedUpdate"
    assert content(client, buried) == odd
    assert lane(client, f"{BOT_ID}/chat:7") == [f"{BOT_ID}:1", f"{BOT_ID}:2"]


def test_malformed_update_is_buried_once(intake: Intake, client: Redis) -> None:
    intake.append(["odd"])
    assert intake.append(["odd", "other"]) == Appended(added=1, seen=1, buried=1, pending=0)
    assert len(dead(client)) == 2


ODD = {
    "half a surrogate pair": message(1, text="\ud800"),
    "half a surrogate pair as a name": message(1, **{"\ud800": 1}),
    "zero": message(1, text="\x00"),
    "a number beyond 64 bits": message(1, number=2**80),
    "a line break and quotes": message(1, text='"}\n{"'),
    "all planes": message(1, text="é ☃ 🙂 \u2028"),
    "a kind that is not an object": {"update_id": 1, "message": 7},
    "a chat that is not an object": {"update_id": 1, "message": {"chat": [7]}},
    "an unknown kind": {"update_id": 1, "new_thing": {"chat": {"id": 7}}},
    "the largest id": message(2**53 - 1),
    "id zero": message(0),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_odd_update_is_passed_unchanged(intake: Intake, client: Redis, odd: dict[str, Any]) -> None:
    assert intake.append([odd]).buried == 0
    assert content(client, f"{BOT_ID}:{odd['update_id']}") == odd


def test_number_that_json_lacks_is_null(intake: Intake, client: Redis) -> None:
    """JSON has no NaN, but a lenient decoder may return it."""
    intake.append([message(1, weight=float("nan"), height=float("inf"))])
    assert content(client, f"{BOT_ID}:1")["message"]["weight"] is None
    assert content(client, f"{BOT_ID}:1")["message"]["height"] is None


@pytest.mark.parametrize("depth", [300, 1_020])
def test_deeply_nested_update_does_not_block_its_batch(intake: Intake, client: Redis, depth: int) -> None:
    nested: Any = 7
    for _ in range(depth):
        nested = [nested]
    # About the limit of the poller's decoder; deeper values could not be read back
    appended = intake.append([message(1), message(2, deep=nested), nested, message(3)])
    assert (appended.added, appended.buried) == (4, 1 if depth == 300 else 2)
    assert lane(client, f"{BOT_ID}/chat:7")[0] == f"{BOT_ID}:1"
    assert lane(client, f"{BOT_ID}/chat:7")[-1] == f"{BOT_ID}:3"


# -- custom order functions


def raising(update: dict[str, Any]) -> list[str]:
    if update["update_id"] == 2:
        raise LookupError("unknown person")
    return ["all"]


def unnamed(update: dict[str, Any]) -> str:
    return raising(update)[0]


def emptying(update: dict[str, Any]) -> list[str]:
    keys = [f"chat:{update['message']['chat']['id']}:{update.pop('update_id')}"]
    update.pop("message").clear()
    return keys


def emptying_name(update: dict[str, Any]) -> str:
    return emptying(update)[0]


def no_list(_: dict[str, Any]) -> Any:
    return "chat:7"


def odd_keys(_: dict[str, Any]) -> list[str]:
    return ["one\ntwo"]


def too_many(_: dict[str, Any]) -> list[str]:
    return [f"key:{n}" for n in range(65)]


def too_long(_: dict[str, Any]) -> list[str]:
    return ["ä" * 200]


def test_update_on_which_order_by_fails_is_buried(client: Redis, any_server: Server) -> None:
    with connected(any_server.url, ORDER_BY="tests.updates.test_intake:raising") as intake:
        assert intake.append([message(1), message(2), message(3)]) == Appended(added=3, seen=0, buried=1, pending=2)
        # And it counts as seen, so it is not appended again
        assert intake.append([message(2)]).seen == 1
    assert dead(client) == [f"{BOT_ID}:2"]
    assert content(client, f"{BOT_ID}:2") == message(2)
    failure = problem(client, f"{BOT_ID}:2")
    assert failure["type"] == "KeysError"
    assert failure["message"] == "tests.updates.test_intake:raising (ORDER_BY) failed with LookupError: unknown person"
    assert lane(client, f"{BOT_ID}/all") == [f"{BOT_ID}:1", f"{BOT_ID}:3"]


def test_update_on_which_collect_fails_is_buried_with_its_lanes(client: Redis, any_server: Server) -> None:
    with connected(any_server.url, COLLECT="tests.updates.test_intake:unnamed") as intake:
        assert intake.append([message(1), message(2)]) == Appended(added=2, seen=0, buried=1, pending=1)
    failure = problem(client, f"{BOT_ID}:2")
    assert failure["message"] == "tests.updates.test_intake:unnamed (COLLECT) failed with LookupError: unknown person"
    assert record(client, f"{BOT_ID}:2")["lanes"] == f"{BOT_ID}/chat:7"


def test_functions_that_change_the_update_change_a_copy(client: Redis, any_server: Server) -> None:
    # Given functions for the keys and the group that remove the content of the update, and its id
    functions = {
        "ORDER_BY": "tests.updates.test_intake:emptying",
        "COLLECT": "tests.updates.test_intake:emptying_name",
    }
    updates = [message(1), message(2, text="half a pair: \ud83d", left=2**70)]
    copies = [deepcopy(each) for each in updates]
    # When updates are appended
    with connected(any_server.url, **functions) as intake:
        assert intake.append(updates) == Appended(added=2, seen=0, buried=0, pending=2)
    # Then they are stored as they were, and the caller can still read the ids that it has to confirm
    assert updates == copies
    found = [json.loads(client.get(keys.body(f"{BOT_ID}:{number}"))[1:].partition(b"\n")[2]) for number in (1, 2)]
    assert [each[0][0] for each in found] == copies
    assert record(client, f"{BOT_ID}:2")["lanes"] == f"{BOT_ID}/chat:7:2"


@pytest.mark.parametrize("name", ["no_list", "odd_keys", "too_many", "too_long"])
def test_update_with_invalid_keys_is_buried(client: Redis, any_server: Server, name: str) -> None:
    with connected(any_server.url, ORDER_BY=f"tests.updates.test_intake:{name}") as intake:
        assert intake.append([message(1)]).buried == 1
    assert problem(client, f"{BOT_ID}:1")["type"] == "KeysError"


@pytest.mark.parametrize(
    "path", ["tests.updates.test_intake:nothing", "no_such_module:keys", "tests.updates.test_intake:BOT_ID"]
)
def test_unusable_order_is_reported_at_start(redis_url: str, path: str) -> None:
    with pytest.raises(ImportPathError, match=f"ORDER_BY={path}"):
        Intake.connect(settings_of(redis_url, ORDER_BY=path))


def test_intake_needs_a_token(redis_url: str) -> None:
    with pytest.raises(SettingsError, match="BOT_TOKEN"):
        Intake.connect(load({"REDIS_URL": redis_url}, env_file=None))


# -- atomic and durable


def test_forgotten_scripts_are_loaded_again(intake: Intake, client: Redis) -> None:
    intake.append([message(1)])
    client.script_flush()
    assert intake.append([message(2), message(1)]) == Appended(added=1, seen=1, buried=0, pending=2)


@pytest.fixture
def everysec(tmp_path: Path) -> Iterator[Server]:
    """A server that is believed to wait for the disk, although it does not."""
    with start_server(tmp_path / "redis", appendfsync="everysec") as server:
        believe(server)
        yield server


def test_everysec_batch_waits_for_the_disk(everysec: Server) -> None:
    with connected(everysec.url) as intake, connect(everysec.url) as client:
        assert intake.durability.how is Durable.WAITAOF
        # Given a server without the scripts, and then with them
        for number in (1, 2):
            # When a batch is appended
            assert intake.append([message(number), message(1)]).added == 1
            # Then WAITAOF was sent on the appending connection, and everything is on disk
            assert client.info("commandstats")["cmdstat_waitaof"]["calls"] >= number
            assert client.execute_command("WAITAOF", 1, 0, 0)[0] == 1
        # And so it is for a batch without new updates: the reply to an earlier append may have been lost
        client.config_resetstat()
        assert intake.append([message(1)]).seen == 1
        assert client.info("commandstats")["cmdstat_waitaof"]["calls"] == 1
    # And the appended updates survive a kill
    everysec.kill()
    with start_server(everysec.log.parent, appendfsync="everysec") as again, connect(again.url) as client:
        assert lane(client, f"{BOT_ID}/chat:7") == [f"{BOT_ID}:1", f"{BOT_ID}:2"]


def test_batch_that_is_not_on_disk_fails(everysec: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a server that does not sync within the limit: it never does, although it reports everysec
    monkeypatch.setattr(durable, "WAITAOF_MS", 50)
    with connected(everysec.url) as intake, connect(everysec.url) as client:
        client.config_set("appendfsync", "no")
        # When a batch is appended
        with pytest.raises(RedisTimeoutError, match=r"did not write to disk within 0\.05 s"):
            intake.append([message(1)])
        # Then it is repeated, and dropped as seen only when it is on disk
        client.config_set("appendfsync", "everysec")
        monkeypatch.setattr(durable, "WAITAOF_MS", 10_000)
        assert intake.append([message(1)]) == Appended(added=0, seen=1, buried=0, pending=1)


def test_fsync_always_needs_no_waitaof(redis_url: str) -> None:
    with connected(redis_url) as intake, connect(redis_url) as client:
        client.config_resetstat()
        intake.append([message(1)])
        assert "cmdstat_waitaof" not in client.info("commandstats")
        assert intake.durability.how is Durable.ALWAYS
        assert intake.durability.safe
        assert str(intake.durability) == "Redis is durable: every write is on disk before it answers (fsync always)"


def test_everysec_is_reported(everysec: Server) -> None:
    with connected(everysec.url) as intake:
        assert intake.durability.safe
        assert str(intake.durability) == (
            "Redis is durable: each batch waits until it is on disk (WAITAOF, tested; appendfsync everysec)"
        )


def test_fsync_never_is_reported_as_a_risk(tmp_path: Path) -> None:
    with start_server(tmp_path, appendfsync="no") as server, connected(server.url) as intake:
        assert not intake.durability.safe
        assert "(appendfsync no): if the machine dies, the last updates are LOST" in str(intake.durability)
        assert intake.append([message(1)]).added == 1


def test_server_without_aof_is_reported_as_a_risk(tmp_path: Path) -> None:
    with start_server(tmp_path, extra=["--appendonly", "no"]) as server, connected(server.url) as intake:
        assert not intake.durability.safe
        assert str(intake.durability).startswith("Redis keeps no append-only file: if it dies, the updates it held are")
        assert intake.append([message(1)]).added == 1


@pytest.mark.skipif(not DEBIAN_REDIS.exists(), reason="apt-get install redis-server")
def test_everysec_on_an_old_server_is_reported_as_a_risk(tmp_path: Path) -> None:
    with (
        start_server(tmp_path, appendfsync="everysec", binary=DEBIAN_REDIS) as server,
        connected(server.url) as intake,
    ):
        assert not intake.durability.safe
        assert "may LOSE the last two seconds of updates" in str(intake.durability)
        assert intake.append([message(1)]).added == 1


def test_unsupported_server_is_refused(tmp_path: Path) -> None:
    with (
        start_server(tmp_path, extra=["--cluster-enabled", "yes"]) as server,
        pytest.raises(ServerUnfit, match="cluster mode"),
    ):
        Intake.connect(settings_of(server.url))


def test_refused_batch_leaves_nothing(tmp_path: Path) -> None:
    with start_server(tmp_path) as server, connected(server.url) as intake, connect(server.url) as client:
        intake.append([message(1)])
        before = client.dbsize()
        client.config_set("maxmemory", "1mb")
        with pytest.raises(ResponseError, match="used memory"):
            intake.append([message(number) for number in range(2, 102)])
        client.config_set("maxmemory", "0")
        assert client.dbsize() == before
        assert intake.append([message(number) for number in range(1, 102)]).added == 100


@pytest.mark.parametrize("part", [b"[" * 100_000 + b"]" * 100_000, b"9" * 5_000], ids=["deep", "long"])
def test_cut_update_is_buried_and_the_others_are_not(client: Redis, intake: Intake, part: bytes) -> None:
    updates = [
        message(1),
        read(b'{"update_id":2,"message":{"chat":{"id":7},"text":"hi","x":' + part + b"}}"),
        message(3),
    ]
    appended = intake.append(updates)
    assert (appended.added, appended.buried) == (3, 1)
    assert record(client, f"{BOT_ID}:2")["state"] == "buried"
    error = json.loads(text(client.lindex(keys.errors(f"{BOT_ID}:2"), 0)))
    assert error["type"] == "CutUpdate"
    assert b"nested too deeply" in (client.get(keys.body(f"{BOT_ID}:2")) or b"")
