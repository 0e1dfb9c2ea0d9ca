"""Reads the lanes that the poller has filled, without the poller's code; and makes Redis block writes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from celery_lanes.embedded_server import Server
from celery_lanes.protocol import connect, keys
from tests.support.bot_api import BOT_ID


def lane(redis_url: str, chat: int = 7) -> list[int]:
    """The update ids in a chat's lane, oldest first."""
    with connect(redis_url) as client:
        ids = client.zrange(keys.lane(f"{BOT_ID}/chat:{chat}"), 0, -1)
    return [int(message_id.decode().rpartition(":")[2]) for message_id in ids]


def lanes(redis_url: str) -> list[list[int]]:
    """The update ids in every chat's lane."""
    prefix = f"{keys.LANE}{BOT_ID}/chat:"
    with connect(redis_url) as client:
        chats = [int(name.decode().removeprefix(prefix)) for name in client.keys(prefix + "*")]
    return [lane(redis_url, chat) for chat in chats]


def buried(redis_url: str) -> int:
    with connect(redis_url) as client:
        return int(client.zcard(keys.DEAD))


def drain(redis_url: str) -> None:
    """Empties the lanes, as if workers had run everything."""
    with connect(redis_url) as client:
        client.delete(*client.keys("lanes:*"), *client.keys("updates.*"))


#: The arguments of an append take more bytes than this. Those of a lead's renewal, which may wait as well, take 88.
LEAST_APPENDED_BYTES = 200


@contextmanager
def writes_held_up(server: Server) -> Iterator[Callable[[], bool]]:
    """Redis answers no write meanwhile. Yields a function that says whether an append waits."""
    with connect(server.url) as client:

        def append_waits() -> bool:
            blocked = [each for each in client.client_list() if "b" in each["flags"]]
            return any(int(each["argv-mem"]) > LEAST_APPENDED_BYTES for each in blocked)

        client.client_pause(600_000, all=False)
        try:
            yield append_waits
        finally:
            client.client_unpause()
