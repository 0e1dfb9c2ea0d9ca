-- prelude: what the verbs of flood control share. It stands in front of each of them when it is loaded.
-- Keys are those of keys.py, all of one bot; TIME is the one clock. Every key expires: none needs to be tidied up.

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- A full Redis refuses a script's first write if that could take memory; after one that takes none it lets it finish.
-- What these verbs write is small and soon gone, and without it the bot would be refused by Telegram.
local function even_when_full() redis.call('DEL', KEYS[1] .. ':none') end
