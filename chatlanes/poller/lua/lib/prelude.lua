-- prelude: constants and functions of the leader election verbs. The source of a verb is the prelude and the verb.
-- All verbs use one key. The only clock is the TIME of Redis.

local leader = KEYS[1]
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = math.floor(now_us / 1000)

local function last_fence()
  return redis.call('HGET', leader, 'fence')
end
