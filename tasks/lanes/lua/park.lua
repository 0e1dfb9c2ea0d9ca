-- park: put a message off that has not failed: it stays first in its lanes, which wait until it is due.
-- KEYS  none
-- ARGV  id fence delay_ms
-- Returns 1, or 0 when the lease was lost and nothing was changed
local id, fence, delay_ms = unpack(ARGV, 1, 3)

even_when_full()
if not holds(id, fence) then
  count('refused', 1)
  return 0
end
take_back(id, 'delayed')
redis.call('ZADD', DELAYED, now_ms + delay_ms, id)
count('parked', 1)
return 1
