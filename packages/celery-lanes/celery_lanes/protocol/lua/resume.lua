-- resume: hand out messages of a paused lane, queue or group again.
-- With  ending
-- KEYS  the queues that may have ready messages then, none for a lane
-- ARGV  what named
--       `what` is lane, queue or group
-- Returns 1, or 0 if it was not paused
local what, named = unpack(ARGV, 1, 2)

even_when_full()
if redis.call('HDEL', PAUSED, what .. ':' .. named) == 0 then return 0 end
if what == 'lane' then
  advance_lane(named, redis.call('ZRANGE', LANE .. named, 0, 0)[1])
  step.contested[named] = true
end
note_existing(step.filled, '', KEYS)
finish()
return 1
