-- renew: extend the leases that still hold.
-- ARGV  lease_ms
--       then id fence, once for each lease
-- Returns the ids whose lease was lost
local lease_ms = unpack(ARGV, 1, 1)

even_when_full()
local lost = {}
for i = 2, #ARGV, 2 do
  if holds(ARGV[i], ARGV[i + 1]) then
    redis.call('ZADD', LEASES, now_ms + lease_ms, ARGV[i])
  else
    lost[#lost + 1] = ARGV[i]
  end
end
return lost
