"""The progress of every update, from worker events, from Redis and from the calls of the bot."""
