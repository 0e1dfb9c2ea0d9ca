-- resign: give up the lead, so that another poller may take it at once.
-- KEYS  1 leader  hash
-- ARGV  fence
-- Returns 1, or 0 when it was lost already
local fence = unpack(ARGV, 1, 1)

if last_fence() ~= fence then return 0 end
return redis.call('DEL', leader)
