-- park: postpone a message that has not failed: it stays first in its lanes, which wait until it is due.
-- With  ending
-- ARGV  id fence delay_ms kind reason
--       `kind` is the word under which it is counted (may be empty), `reason` is shown to people
-- Returns 1, or 0 if the lease was lost and nothing was changed
local id, fence, delay_ms, kind, reason = unpack(ARGV, 1, 5)

even_when_full()
if not check_lease(id, fence) then return 0 end
local queue = take_back(id, 'delayed')
redis.call('HSET', MESSAGE .. id, 'parked', reason)
redis.call('HDEL', MESSAGE .. id, 'alive')
redis.call('ZADD', DELAYED, now_ms + delay_ms, id)
count('parked', 1)
local counted = kind .. ' ' .. group_of(queue)
add_to(PARKED, 'times ' .. counted, 1)
add_to(PARKED, 'ms ' .. counted, math.max(delay_ms, 0))
finish()
return 1
