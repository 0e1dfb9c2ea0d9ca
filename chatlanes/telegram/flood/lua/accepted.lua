-- accepted: Telegram accepted a call, so earlier refusals concerned single chats, not the whole bot.
-- KEYS  1 refused
-- Returns 1, or 0 if no scope was refused
return redis.call('DEL', KEYS[1])
