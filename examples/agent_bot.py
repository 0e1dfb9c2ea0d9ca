"""An agent that books trips: it thinks aloud, uses two tools that cost money, and asks before the second.

    COLLECT=messages INTERRUPT=steer make run BOT=examples.agent_bot:bot

The model and the tools are stand-ins: put your own in their places. docs/agents.md explains the bot.
"""

import asyncio
import logging

from chatlanes import Bot

HELP = "Tell me where you want to go. /stop, or the Stop button, ends what I am doing."
BOOK = "Book it"
log = logging.getLogger("agent")


async def handle(ctx):
    if not ctx.text or ctx.text.startswith("/"):
        await ctx.reply(HELP)
        return
    await ctx.stream(model(f"You want this: “{ctx.text}”. I search for a hotel that fits."), draft=True)
    more = [update["message"].get("text", "") async for update in ctx.arrivals()]  # what the user has added meanwhile
    hotel = await ctx.step("search", search, ", ".join([ctx.text, *more]))
    await ctx.stream(model(f"{hotel['name']} suits “{hotel['wish']}”, and has a quiet room."), draft=True)
    question = f"{hotel['name']} costs {hotel['price']} €."
    if await ctx.ask(question, buttons=[BOOK, "No"], timeout=3600, default="No") != BOOK:
        await ctx.reply("I have booked nothing.")
        return
    booking = await ctx.step("book", book, hotel)
    await ctx.reply(f"It is booked. The number is {booking['number']}.")


async def on_stop(ctx):
    await ctx.reply("Stopped. What shall I do instead?")


async def model(prompt):
    """Stands for a language model that streams: it repeats its prompt, word by word."""
    for word in prompt.split():
        yield f"{word} "
        await asyncio.sleep(0.1)


async def search(wish, key):
    """Costs money each time: a rerun gets the recorded result. `key` is the same in each run."""
    log.warning("paid 0.10 € for %s", key)
    return {"name": "Hotel Aurora", "price": 120, "wish": wish}


async def book(hotel, key):
    """Costs much: the hotel gets the key, and so refuses a second booking even after a crash during the first."""
    log.warning("paid %s € for %s", hotel["price"], key)
    return {"number": f"A-{key.split('/')[0].rpartition(':')[2]}"}


bot = Bot(handle, on_stop=on_stop)
