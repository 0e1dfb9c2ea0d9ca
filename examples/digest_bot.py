"""A digest at nine on working days, for the chats that want it.

BOT=examples.digest_bot:bot SCHEDULES=examples.digest_bot:schedules
"""

from functools import cache

from redis import Redis

from chatlanes import Bot, Schedule, load

SUBSCRIBERS = "digest:subscribers"


def handle(ctx):
    if ctx.text == "/start":
        redis().sadd(SUBSCRIBERS, ctx.chat_id)  # harmless if the update runs twice
        ctx.reply("You get the digest at nine on working days. /stop ends it.")
    elif ctx.text == "/stop":
        unsubscribe(ctx)
        ctx.reply("No more digests.")


def unsubscribe(ctx):
    redis().srem(SUBSCRIBERS, ctx.chat_id)


def send_digest(ctx):
    text = f"The digest of {ctx.schedule.due:%A, %d %B}"
    ctx.broadcast(map(int, redis().smembers(SUBSCRIBERS)), "sendMessage", text=text)


@cache
def redis():
    return Redis.from_url(load().redis_url, decode_responses=True)


bot = Bot(handle, on_blocked=unsubscribe)
schedules = [Schedule("digest", "0 9 * * mon-fri", send_digest, tz="Europe/Berlin", missed="run")]
