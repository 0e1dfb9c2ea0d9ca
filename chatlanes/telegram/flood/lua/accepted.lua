-- accepted: Telegram took a call: what it refused others was about their chats, not about the bot.
-- KEYS  1 refused
-- ARGV  none
-- Returns 1, or 0 when nobody was refused
return redis.call('DEL', KEYS[1])
