"""The calls of the bot: their parameters, the messages they make, and the files they name."""
