"""A digest at nine on working days, for the chats that want it.

BOT=examples.digest_bot:handle SCHEDULES=examples.digest_bot:schedules
"""

from functools import cache

from redis import Redis

from chatlanes import Schedule, errors, load

SUBSCRIBERS = "digest:subscribers"
DAY_S = 86_400


def handle(ctx):
    if ctx.text == "/start":
        redis().sadd(SUBSCRIBERS, ctx.chat_id)  # harmless if the update runs twice
        ctx.reply("You get the digest at nine on working days. /stop ends it.")
    elif ctx.text == "/stop":
        redis().srem(SUBSCRIBERS, ctx.chat_id)
        ctx.reply("No more digests.")


def send_digest(ctx):
    # After a crash, a run repeats no call as long as it makes the same calls in the same order: copy does nothing then.
    recipients = f"{SUBSCRIBERS}:{ctx.schedule.due:%Y-%m-%d}"
    redis().copy(SUBSCRIBERS, recipients)
    redis().expire(recipients, DAY_S)
    for chat in sorted(redis().smembers(recipients)):
        try:
            ctx.call("sendMessage", chat_id=int(chat), text=f"The digest of {ctx.schedule.due:%A, %d %B}")
        except errors.Forbidden:  # the user has blocked the bot
            redis().srem(SUBSCRIBERS, chat)


@cache
def redis():
    return Redis.from_url(load().redis_url, decode_responses=True)


schedules = [Schedule("digest", "0 9 * * mon-fri", send_digest, tz="Europe/Berlin", missed="run")]
