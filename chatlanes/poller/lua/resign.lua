-- resign: give up the lead, so that another poller can take it at once.
-- KEYS  1 leader  hash
-- ARGV  fence
-- Returns 1, or 0 if it was lost before
local fence = unpack(ARGV, 1, 1)

if last_fence() ~= fence then return 0 end
return redis.call('DEL', leader)
