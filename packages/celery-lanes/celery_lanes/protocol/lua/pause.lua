-- pause: stop handing out messages of a lane, a queue or a group of queues. New ones wait; running ones continue.
-- KEYS  none
-- ARGV  what named
--       `what` is lane, queue or group
-- Returns 1, or 0 if it was paused already
local what, named = unpack(ARGV, 1, 2)

if redis.call('HSETNX', PAUSED, what .. ':' .. named, now_ms) == 0 then return 0 end
-- No message of a paused lane is ready (see stay_back), so a fetch need not check lanes.
local first = what == 'lane' and redis.call('ZRANGE', LANE .. named, 0, 0)[1]
local found = first and redis.call('HMGET', MESSAGE .. first, 'state', 'queue') or {}
if found[1] == 'ready' then redis.call('LREM', found[2], 1, first) end
if found[1] == 'ready' or found[1] == 'collecting' then redis.call('HSET', MESSAGE .. first, 'state', 'waiting') end
return 1
