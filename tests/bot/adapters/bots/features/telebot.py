"""A TeleBot with common features: middlewares, states in topics, steps, replies, filters, and calls at import."""

from __future__ import annotations

import threading

from telebot import ExceptionHandler, TeleBot, apihelper, types
from telebot.custom_filters import StateFilter, TextFilter, TextMatchFilter
from telebot.handler_backends import BaseMiddleware, State, StatesGroup

from chatlanes.bot import current
from tests.bot.adapters.bots.script import TOKEN, note

note("import")
apihelper.proxy = {"https": "http://127.0.0.1:9"}


class Order(StatesGroup):
    size = State()


class Harmless(ExceptionHandler):
    def handle(self, exception):
        bot.send_message(current().chat_id, f"heard of {exception}")
        return "harmless" in str(exception)


class Named(BaseMiddleware):
    """Passes a name to handlers, and reports their errors."""

    update_types = ("message", "inline_query")

    def pre_process(self, message, data):
        data["who"] = message.from_user.first_name

    def post_process(self, message, data, exception):
        if exception:
            bot.send_message(current().chat_id, f"after {exception}")


class Shop:
    def begin(self, message, who):
        asked = bot.send_message(message.chat.id, f"{who}, your street?")
        bot.register_next_step_handler(asked, self.street, message, who=who)

    def street(self, message, first, who):
        bot.send_message(message.chat.id, f"{who}: {first.text}, {message.text}")
        bot.register_for_reply(first, self.replied)

    def replied(self, message):
        bot.send_message(message.chat.id, f"replied {message.text}")


bot = TeleBot(TOKEN, parse_mode="HTML", num_threads=4, use_class_middlewares=True, exception_handler=Harmless())
bot.remove_webhook()
bot.set_my_commands([types.BotCommand("buy", "buy something")])
bot.enable_save_next_step_handlers(delay=1)
bot.load_next_step_handlers()
for each in (StateFilter(bot), TextMatchFilter()):
    bot.add_custom_filter(each)
bot.setup_middleware(Named())
shop = Shop()
bot.register_message_handler(shop.begin, commands=["buy"])


@bot.message_handler(text=TextFilter(starts_with="order"))
def order(message):
    place = {"message_thread_id": message.message_thread_id}
    bot.set_state(message.from_user.id, Order.size, message.chat.id, **place)
    bot.add_data(message.from_user.id, message.chat.id, what="tea", **place)


@bot.message_handler(state=Order.size)
def size(message):
    place = {"message_thread_id": message.message_thread_id}
    with bot.retrieve_data(message.from_user.id, message.chat.id, **place) as data:
        bot.reply_to(message, f"{message.text} {data['what']}")
    bot.delete_state(message.from_user.id, message.chat.id, **place)


@bot.message_handler(content_types=["document"])
def document(message):
    found = bot.get_file(message.document.file_id)
    bot.send_message(message.chat.id, bot.download_file(found.file_path).decode())


@bot.message_handler(regexp="^fails")
def fail(message):
    raise RuntimeError(message.text)


@bot.message_handler(func=lambda message: message.text == "polls")
def poll(message):
    thread = threading.Thread(target=bot.infinity_polling)
    thread.start()
    thread.join()
    bot.send_message(message.chat.id, "continues")


@bot.inline_handler(lambda query: True)
def offer(query):
    bot.answer_inline_query(query.id, [types.InlineQueryResultArticle("1", "t", types.InputTextMessageContent("x"))])


threading.Thread(target=threading.Event().wait, name="janitor", daemon=True).start()
