-- prelude: shared code of the flood-control scripts, prepended to each of them when it is loaded.
-- Keys are those of keys.py, all of one bot; TIME is the only clock. Keys expire, so none needs cleanup.

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- A Redis at maxmemory refuses a script whose first write may need memory, but completes one whose first write does not.
-- These scripts write little, their keys expire soon, and without these writes Telegram would refuse the bot's calls.
local function even_when_full() redis.call('DEL', KEYS[1] .. ':none') end

-- Returns how many ms of a pause are left, 0 or less if there is none. Its value is how long it was at first: if more is
-- left, the clock was set back, and it begins again. A 1 is the value that earlier releases wrote.
local function left_of(key)
  local left_ms = redis.call('PTTL', key)
  local whole_ms = left_ms > 0 and tonumber(redis.call('GET', key)) or 1
  if whole_ms == 1 or left_ms <= whole_ms then return left_ms end
  redis.call('PEXPIRE', key, whole_ms)
  return whole_ms
end
