-- pause: hand out nothing more of a lane, a queue or a group of queues. What comes for it waits; what runs goes on.
-- KEYS  none
-- ARGV  what named
--       `what` is lane, queue or group
-- Returns 1, or 0 when it was paused already
local what, named = unpack(ARGV, 1, 2)

if redis.call('HSETNX', PAUSED, what .. ':' .. named, now_ms) == 0 then return 0 end
-- Nothing of a paused lane is ready, so that no turn has to ask; see to_ready.
local first = what == 'lane' and redis.call('ZRANGE', LANE .. named, 0, 0)[1]
local found = first and redis.call('HMGET', MESSAGE .. first, 'state', 'queue') or {}
if found[1] == 'ready' then
  redis.call('LREM', found[2], 1, first)
  redis.call('HSET', MESSAGE .. first, 'state', 'waiting')
end
return 1
