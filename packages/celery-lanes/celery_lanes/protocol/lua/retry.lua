-- retry: give a message back after a failure: it stays first in its lanes, which wait until it is due.
-- With  ending
-- ARGV  id fence delay_ms problem
-- Returns 1, or 0 if the lease was lost and nothing was changed
local id, fence, delay_ms, problem = unpack(ARGV, 1, 4)

even_when_full()
if not check_lease(id, fence) then return 0 end
take_back(id, 'delayed')
redis.call('HDEL', MESSAGE .. id, 'parked', 'alive')
redis.pcall('HINCRBY', MESSAGE .. id, 'failed', 1) -- a corrupt count stays: turn.lua buries the message
redis.call('RPUSH', ERRORS .. id, problem)
redis.call('ZADD', DELAYED, now_ms + delay_ms, id)
count('retried', 1)
finish()
return 1
