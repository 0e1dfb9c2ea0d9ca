-- resume: hand out again what was paused.
-- With  ends
-- KEYS  the queues in which something may be ready by that, none for a lane
-- ARGV  what named
--       `what` is lane, queue or group
-- Returns 1, or 0 when it was not paused
local what, named = unpack(ARGV, 1, 2)

even_when_full()
if redis.call('HDEL', PAUSED, what .. ':' .. named) == 0 then return 0 end
if what == 'lane' then advance(named, redis.call('ZRANGE', LANE .. named, 0, 0)[1]) end
for _, queue in ipairs(which(KEYS, true)) do filled[queue] = true end
ring_bells()
return 1
