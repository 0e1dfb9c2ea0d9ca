"""The chats of the page: their history, what users do in them, and what the calls of the bot change."""
