"""A Dispatcher and an Application with a form: the first message begins it, and each later one adds an item."""

from aiogram import Dispatcher, F
from aiogram.fsm.state import State, StatesGroup
from telegram.ext import Application, ConversationHandler, MessageHandler, filters

from tests.bot.adapters.bots.script import TOKEN

dp = Dispatcher()
TIMEOUT_S = 3600


class Form(StatesGroup):
    items = State()


@dp.message(F.text == "begin")
async def begin_form(message, state):
    await state.set_state(Form.items)
    await state.update_data(items=0)


@dp.message(Form.items)
async def add_item(message, state):
    items = (await state.get_data())["items"] + 1
    await state.update_data(items=items)
    await message.answer(f"items {items}")


async def begin(update, context):
    context.user_data["name"] = "Ann"
    return 0


async def add(update, context):
    context.chat_data["items"] = context.chat_data.get("items", 0) + 1
    await update.effective_message.reply_text(f"items {context.chat_data['items']}")
    return context.chat_data["items"]


conversation = ConversationHandler(
    [MessageHandler(filters.Regex("^begin$"), begin)],
    {state: [MessageHandler(filters.TEXT, add)] for state in (0, 1, 2, ConversationHandler.TIMEOUT)},
    [],
    conversation_timeout=TIMEOUT_S,
)
application = Application.builder().token(TOKEN).updater(None).build()
application.add_handler(conversation)
