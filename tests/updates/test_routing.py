"""The lanes of an update: for every kind, for malformed updates, and for arbitrary JSON."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlanes.settings.imports import ImportPathError
from chatlanes.updates.parsing import KINDS, parse
from chatlanes.updates.routing import (
    ORDERS,
    KeysError,
    chat_of,
    check_order_by,
    is_express,
    keys_of,
    kind_of,
    queue_of,
)
from tests.support import ROOT

GROUP, OTHER_GROUP, CHANNEL = -100, -200, -300
ANN, BEN = {"id": 7, "is_bot": False}, {"id": 8, "is_bot": False}
IN_GROUP = {"chat": {"id": GROUP, "type": "supergroup"}, "from": ANN}
IN_PRIVATE = {"chat": {"id": 7, "type": "private"}, "from": ANN}
IN_CHANNEL = {"chat": {"id": CHANNEL}, "sender_chat": {"id": CHANNEL}}
IN_TOPIC = {**IN_GROUP, "is_topic_message": True, "message_thread_id": 33}
IN_BUSINESS = {**IN_PRIVATE, "business_connection_id": "bc"}
BOOST = {"boost_id": "b", "source": {"source": "premium", "user": ANN}}

#: kind, body, and the keys by chat, chat+user, topic, user, separated by blanks.
TABLE = [
    ("message", IN_PRIVATE, "chat:7", "chat:7 user:7", "chat:7", "user:7"),
    ("message", IN_GROUP, "chat:-100", "chat:-100 user:7", "chat:-100", "user:7"),
    ("message", IN_TOPIC, "chat:-100", "chat:-100 user:7", "topic:-100:33", "user:7"),
    ("message", {**IN_GROUP, "message_thread_id": 66}, "chat:-100", "chat:-100 user:7", "chat:-100", "user:7"),
    ("edited_message", IN_GROUP, "chat:-100", "chat:-100 user:7", "chat:-100", "user:7"),
    ("edited_message", IN_TOPIC, "chat:-100", "chat:-100 user:7", "topic:-100:33", "user:7"),
    # Sent on behalf of a chat: `from` is then one placeholder for all anonymous admins of Telegram.
    (
        "message",
        {"chat": {"id": GROUP}, "from": {"id": 1087968824}, "sender_chat": {"id": GROUP}},
        *["chat:-100"] * 4,
    ),
    (
        "message",
        {"chat": {"id": GROUP}, "from": {"id": 777000}, "sender_chat": {"id": CHANNEL}},
        "chat:-100",
        "chat:-100 chat:-300",
        "chat:-100",
        "chat:-300",
    ),
    (
        "message",
        {**IN_GROUP, "migrate_to_chat_id": OTHER_GROUP},
        "chat:-100 chat:-200",
        "chat:-100 chat:-200 user:7",
        "chat:-100 chat:-200",
        "user:7",
    ),
    (
        "message",
        {"chat": {"id": OTHER_GROUP}, "from": ANN, "migrate_from_chat_id": GROUP},
        "chat:-200 chat:-100",
        "chat:-200 chat:-100 user:7",
        "chat:-200 chat:-100",
        "user:7",
    ),
    ("channel_post", IN_CHANNEL, *["chat:-300"] * 4),
    ("channel_post", {"chat": {"id": CHANNEL}}, *["chat:-300"] * 4),
    ("edited_channel_post", IN_CHANNEL, *["chat:-300"] * 4),
    (
        "business_connection",
        {"id": "bc", "user": ANN, "user_chat_id": 7},
        "chat:7",
        "chat:7 user:7",
        "chat:7",
        "user:7",
    ),
    ("business_message", IN_BUSINESS, "business:bc:7", "business:bc:7 user:7", "business:bc:7", "user:7"),
    ("business_message", IN_PRIVATE, "chat:7", "chat:7 user:7", "chat:7", "user:7"),
    ("edited_business_message", IN_BUSINESS, "business:bc:7", "business:bc:7 user:7", "business:bc:7", "user:7"),
    (
        "deleted_business_messages",
        {"chat": {"id": 7}, "business_connection_id": "bc", "message_ids": [1]},
        *["business:bc:7"] * 3,
        "user:7",
    ),
    ("guest_message", {**IN_GROUP, "guest_query_id": "g"}, "guest:-100", "guest:-100 user:7", "guest:-100", "user:7"),
    ("guest_message", {"chat": {"id": 9}}, *["guest:9"] * 4),
    ("message_reaction", {"chat": {"id": GROUP}, "user": ANN}, "chat:-100", "chat:-100 user:7", "chat:-100", "user:7"),
    (
        "message_reaction",
        {"chat": {"id": GROUP}, "actor_chat": {"id": CHANNEL}},
        "chat:-100",
        "chat:-100 chat:-300",
        "chat:-100",
        "chat:-300",
    ),
    ("message_reaction_count", {"chat": {"id": CHANNEL}}, *["chat:-300"] * 4),
    ("inline_query", {"id": "1", "from": ANN}, "chat:7", "chat:7 user:7", "chat:7", "user:7"),
    ("chosen_inline_result", {"from": ANN, "inline_message_id": "i"}, "chat:7", "chat:7 user:7", "chat:7", "user:7"),
    ("callback_query", {"from": BEN, "message": IN_GROUP}, "chat:-100", "chat:-100 user:8", "chat:-100", "user:8"),
    ("callback_query", {"from": BEN, "message": IN_TOPIC}, "chat:-100", "chat:-100 user:8", "topic:-100:33", "user:8"),
    (
        "callback_query",
        {"from": BEN, "message": IN_BUSINESS},
        "business:bc:7",
        "business:bc:7 user:8",
        "business:bc:7",
        "user:8",
    ),
    ("callback_query", {"from": ANN, "inline_message_id": "i"}, "chat:7", "chat:7 user:7", "chat:7", "user:7"),
    ("callback_query", {"from": ANN, "message": None}, "chat:7", "chat:7 user:7", "chat:7", "user:7"),
    ("shipping_query", {"id": "1", "from": ANN}, "chat:7", "chat:7 user:7", "chat:7", "user:7"),
    ("pre_checkout_query", {"id": "1", "from": ANN}, "chat:7", "chat:7 user:7", "chat:7", "user:7"),
    ("purchased_paid_media", {"from": ANN}, "chat:7", "chat:7 user:7", "chat:7", "user:7"),
    ("poll", {"id": "55"}, *["poll:55"] * 4),
    ("poll_answer", {"poll_id": "55", "user": ANN}, "chat:7", "chat:7 user:7", "chat:7", "user:7"),
    ("poll_answer", {"poll_id": "55", "user": {"id": 136817688}, "voter_chat": {"id": CHANNEL}}, *["chat:-300"] * 4),
    ("poll_answer", {"poll_id": "55"}, *["poll:55"] * 4),
    (
        "my_chat_member",
        {**IN_GROUP, "new_chat_member": {"user": {"id": 99}}},
        "chat:-100",
        "chat:-100 user:7",
        "chat:-100",
        "user:7",
    ),
    (
        "chat_member",
        {**IN_GROUP, "new_chat_member": {"user": BEN}},
        "chat:-100",
        "chat:-100 user:7 user:8",
        "chat:-100",
        "user:7 user:8",
    ),
    (
        "chat_member",
        {**IN_GROUP, "new_chat_member": {"user": ANN}},
        "chat:-100",
        "chat:-100 user:7",
        "chat:-100",
        "user:7",
    ),
    ("chat_join_request", {**IN_GROUP, "user_chat_id": 7}, "chat:-100", "chat:-100 user:7", "chat:-100", "user:7"),
    ("chat_boost", {"chat": {"id": GROUP}, "boost": BOOST}, "chat:-100", "chat:-100 user:7", "chat:-100", "user:7"),
    ("chat_boost", {"chat": {"id": GROUP}, "boost": {"source": {"source": "giveaway"}}}, *["chat:-100"] * 4),
    ("removed_chat_boost", {"chat": {"id": GROUP}, **BOOST}, "chat:-100", "chat:-100 user:7", "chat:-100", "user:7"),
    ("managed_bot", {"user": ANN, "bot": {"id": 99}}, "chat:7", "chat:7 user:7", "chat:7", "user:7"),
    ("subscription", {"user": ANN, "invoice_payload": "p"}, "chat:7", "chat:7 user:7", "chat:7", "user:7"),
    ("stopped_message_generation", {"chat": {"id": 7}, "draft_id": 1}, "chat:7", "chat:7", "chat:7", "user:7"),
    (
        "stopped_message_generation",
        {"chat": {"id": 7}, "message_thread_id": 33},
        "chat:7",
        "chat:7",
        "topic:7:33",
        "user:7",
    ),
    # Unknown kinds are read by the structure of the known ones.
    ("new_kind", IN_GROUP, "chat:-100", "chat:-100 user:7", "chat:-100", "user:7"),
    ("new_kind", {"message": IN_TOPIC, "from": BEN}, "chat:-100", "chat:-100 user:8", "topic:-100:33", "user:8"),
    ("new_kind", {"from": ANN}, "chat:7", "chat:7 user:7", "chat:7", "user:7"),
    ("new_kind", {"user": ANN}, "chat:7", "chat:7 user:7", "chat:7", "user:7"),
    ("new_kind", {"poll_id": "55"}, *["poll:55"] * 4),
    ("new_kind", {"something": 17}, *[""] * 4),
    ("new_kind", 17, *[""] * 4),
]


@pytest.mark.parametrize(("kind", "body", "chat", "chat_and_user", "topic", "user"), TABLE)
def test_keys_of_every_kind(kind, body, chat, chat_and_user, topic, user):
    update = {"update_id": 1, kind: body}
    assert kind_of(update) == kind
    assert [keys_of(update, order_by) for order_by in ORDERS] == [
        keys.split() for keys in (chat, chat_and_user, topic, user, "bot")
    ]
    assert keys_of(update) == chat.split()


def test_table_has_all_27_kinds():
    assert len(KINDS) == 27
    assert {row[0] for row in TABLE} == KINDS | {"new_kind"}


@pytest.mark.parametrize("malformed", [None, 7, "chat", [], {}, {"id": None}, {"id": True}, {"id": "7"}, {"id": 7.0}])
def test_malformed_chat_falls_back_to_the_user(malformed):
    update = {"update_id": 1, "message": {"chat": malformed, "from": ANN}}
    assert (keys_of(update), chat_of(update)) == (["chat:7"], 7)
    assert keys_of({"update_id": 1, "callback_query": {"message": {"chat": malformed}, "from": ANN}}) == ["chat:7"]
    assert keys_of({"update_id": 1, "message": {"chat": ANN, "from": malformed}}, "user") == ["user:7"]


@pytest.mark.parametrize("malformed", [None, 7, "", "a\nb", "\ud800", "x" * 257, {}])
def test_malformed_connection_or_poll_gives_no_key(malformed):
    assert keys_of({"business_message": {**IN_PRIVATE, "business_connection_id": malformed}}) == ["chat:7"]
    assert keys_of({"poll": {"id": malformed}}) == []


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**5000], ids=["over", "under", "unprintable"])
def test_too_large_number_is_not_an_id(number):
    assert keys_of({"message": {"chat": {"id": number}, "from": ANN, "migrate_to_chat_id": number}}) == ["chat:7"]


@pytest.mark.parametrize("update", [None, 7, "message", [], {}, {"update_id": 7}, {"Some Thing": {}}, {"x" * 65: {}}])
def test_malformed_update_has_no_key_and_no_kind(update):
    assert (keys_of(update), kind_of(update), chat_of(update)) == ([], "unknown", None)


def test_first_known_kind_with_a_body_counts():
    update = {"update_id": 1, "later_kind": {"from": BEN}, "message": None, "poll_answer": {"user": ANN}, "poll": {}}
    assert (kind_of(update), keys_of(update)) == ("poll_answer", ["chat:7"])
    assert kind_of({"update_id": 1, "new_kind": {}, "newer_kind": {}}) == "new_kind"


@pytest.mark.parametrize(
    ("kind", "body", "chat"),
    [
        ("message", IN_GROUP, GROUP),
        ("callback_query", {"from": BEN, "message": IN_GROUP}, GROUP),
        ("inline_query", {"from": ANN}, 7),
        ("business_connection", {"id": "bc", "user": ANN, "user_chat_id": 70}, 70),
        ("poll_answer", {"voter_chat": {"id": CHANNEL}}, CHANNEL),
        ("poll", {"id": "55"}, None),
    ],
)
def test_chat_of_an_update(kind, body, chat):
    assert chat_of({"update_id": 1, kind: body}) == chat


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
FIELDS = [
    *("chat", "from", "user", "message", "id", "poll_id", "boost", "source", "new_chat_member", "user_chat_id"),
    *("sender_chat", "actor_chat", "voter_chat", "migrate_to_chat_id", "migrate_from_chat_id"),
    *("business_connection_id", "guest_query_id", "is_topic_message", "message_thread_id"),
]
SHAPED = st.recursive(
    JSON | st.builds(lambda number: {"id": number}, st.integers()),
    lambda inner: st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6),
    max_leaves=20,
)
UPDATES = JSON | st.dictionaries(st.sampled_from(["update_id", "new_kind", *sorted(KINDS)]), SHAPED, max_size=3)


@pytest.mark.slow
@given(update=UPDATES, order_by=st.sampled_from(list(ORDERS)))
def test_any_json_has_distinct_printable_keys(update, order_by):
    keys = keys_of(update, order_by)
    assert len(set(keys)) == len(keys)
    for key in keys:
        kind, _, identity = key.partition(":")
        assert kind in {"chat", "user", "topic", "poll", "business", "guest"} or key == "bot"
        assert identity or key == "bot"
        assert not any(character < " " for character in key)
        key.encode()
    assert queue_of(keys, 1, 8) in {f"updates.{number}" for number in range(8)}
    assert chat_of(update) is None or keys
    assert kind_of(update).isprintable()


def test_chat_always_has_the_same_queue():
    # In every process and version: a deployment must not move a chat past updates that wait in its old queue.
    assert queue_of(["chat:7", "user:8"], 1, 8) == queue_of(["chat:7"], 2, 8) == "updates.7"
    code = "from chatlanes.updates.routing import queue_of; print(queue_of(['chat:7'], 1, 8))"
    env = {**os.environ, "PYTHONHASHSEED": "123"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "updates.7\n"


def test_chats_are_spread_evenly_over_the_queues():
    load = Counter(queue_of([f"chat:{chat}"], 0, 8) for chat in range(100_000_000, 100_008_000))
    assert len(load) == 8
    assert max(load.values()) < 1.2 * min(load.values())


def test_updates_without_a_key_are_spread_over_the_queues():
    assert len({queue_of([], update_id, 8) for update_id in range(100)}) == 8


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Writes a custom module into the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def write(name: str, source: str) -> None:
        (tmp_path / f"{name}.py").write_text(source)

    return write


def test_custom_function_is_imported_once(own):
    own("own_order", "print('imported')\ndef keys(update): return ['shop:é', 'shop:é', str(update['n'])]")
    code = """
import json
from chatlanes.updates.routing import keys_of
for n in range(3):
    print(json.dumps(keys_of({"n": n}, "own_order:keys")))
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    first, *answers = done.stdout.splitlines()
    assert first == "imported"
    assert [json.loads(answer) for answer in answers] == [["shop:é", str(n)] for n in range(3)]


def test_custom_function_may_return_no_keys(own):
    own("own_none", "def keys(update): return []")
    assert keys_of({}, "own_none:keys") == []


@pytest.mark.parametrize(
    ("number", "result", "complaint"),
    [
        (1, "None", "must return a list of keys, not NoneType"),
        (2, "'chat:1'", "must return a list of keys, not str"),
        (3, "['']", "'' is not a key: a key has 1 to 256 characters"),
        (4, "[7]", "7 is not a key"),
        (5, "['a\\nb']", "is not a key: a key has 1 to 256 characters, no control characters"),
        (6, "['\\ud800']", "is not a key"),
        (7, "['x' * 257]", "is not a key"),
        (8, "{}['x']", "failed with KeyError: 'x'"),
    ],
)
def test_invalid_list_of_keys_is_refused(own, number, result, complaint):
    own(f"own_bad{number}", f"def keys(update): return {result}")
    with pytest.raises(KeysError, match=complaint):
        keys_of({}, f"own_bad{number}:keys")


#: Bad functions: values and errors that cannot be shown, or that end a process.
HOSTILE_FUNCTIONS = """
import sys
from enum import Enum

class Shy:
    def __repr__(self): raise LookupError
class Endless(list):
    def __iter__(self): raise MemoryError
    def __len__(self): return 1
class Silent(Exception):
    def __str__(self): raise LookupError
class Named(str, Enum):
    DE = "de"

def fails(error): raise error
RESULTS = {
    "shy": lambda update: [Shy()], "endless": lambda update: Endless(), "huge": lambda update: [10**5000],
    "silent": lambda update: fails(Silent()), "exits": lambda update: sys.exit(3),
    "large": lambda update: fails(ValueError("x" * 10**6)), "many": lambda update: ["k"] * 10**7,
    "long": lambda update: ["x" * 10**8], "deep": lambda update: [eval("[" * 90 + "]" * 90)],
    "recursive": lambda update: RESULTS["recursive"](update), "stop": lambda update: next(iter([])),
}
globals().update(RESULTS)
def enum(update): return [Named.DE]
async def later(update): return ["k"]
"""
HOSTILE = ["shy", "endless", "huge", "silent", "exits", "large", "many", "long", "deep", "recursive", "stop"]


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_a_custom_function_does_is_a_short_error(own, name):
    own("own_hostile", HOSTILE_FUNCTIONS)
    with pytest.raises(KeysError) as caught:
        keys_of({}, f"own_hostile:{name}")
    assert str(caught.value).startswith(f"own_hostile:{name} (ORDER_BY)")
    assert len(str(caught.value)) < 3_000


def test_a_custom_key_is_a_plain_text(own):
    own("own_hostile", HOSTILE_FUNCTIONS)
    [key] = keys_of({}, "own_hostile:enum")
    assert (type(key), key) == (str, "de")


def test_a_custom_async_function_is_found_at_start(own):
    own("own_hostile", HOSTILE_FUNCTIONS)
    with pytest.raises(ImportPathError, match="is an async function; name one that returns a list of keys"):
        check_order_by("own_hostile:later")


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("no_such_order:keys", "ORDER_BY=no_such_order:keys: there is no module no_such_order in "),
        ("json:no_such", "json has no no_such"),
        ("json:__doc__", "names a value of type str, which cannot be called"),
        ("chats", "is not an import path"),
    ],
)
def test_missing_custom_function_is_found_at_start(path, complaint):
    with pytest.raises(ImportPathError, match=complaint):
        check_order_by(path)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_urgent_kinds_are_express(kind: str) -> None:
    assert is_express(parse({"update_id": 1, kind: {"from": {"id": 9}}})) == (
        kind in ("pre_checkout_query", "shipping_query")
    )


def test_a_request_to_join_with_a_query_is_express() -> None:
    assert is_express(parse({"update_id": 1, "chat_join_request": {**IN_GROUP, "query_id": "q"}}))
    assert not is_express(parse({"update_id": 1, "inline_query": {"from": ANN, "query_id": "q"}}))
