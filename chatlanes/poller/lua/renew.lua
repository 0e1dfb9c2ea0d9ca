-- renew: extend the lease of the leader, even if it has expired and no other poller has taken the lead.
-- KEYS  1 leader  hash
-- ARGV  fence lease_ms
-- Returns 1, or 0 if the lead was lost
local fence, lease_ms = unpack(ARGV, 1, 2)

if last_fence() ~= fence then return 0 end
redis.call('HSET', leader, 'until_ms', now_ms + lease_ms)
return 1
