-- prelude: shared code of the flood-control scripts, prepended to each of them when it is loaded.
-- Keys are those of keys.py, all of one bot; TIME is the only clock. Keys expire, so none needs cleanup.

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- A Redis at maxmemory refuses a script whose first write may need memory, but completes one whose first write does not.
-- These scripts write little, their keys expire soon, and without these writes Telegram would refuse the bot's calls.
local function even_when_full() redis.call('DEL', KEYS[1] .. ':none') end
