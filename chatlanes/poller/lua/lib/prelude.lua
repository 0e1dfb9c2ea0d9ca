-- prelude: what the verbs of the lead share. It stands in front of each of them when it is loaded.
-- They know one key, and Redis' TIME is the one clock that says when a lease is over.

local leader = KEYS[1]
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = math.floor(now_us / 1000)

local function last_fence()
  return redis.call('HGET', leader, 'fence')
end
