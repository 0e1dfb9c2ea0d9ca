-- take: become the leader if there is none, or stay the leader.
-- KEYS  1 leader  hash
-- ARGV  fence holder lease_ms
-- Returns {fence of the caller's lead, '' if another poller leads; holder of the lead}
local fence, holder, lease_ms = unpack(ARGV, 1, 3)
lease_ms = tonumber(lease_ms)

local last = last_fence()
if last ~= fence then
  local found = redis.call('HMGET', leader, 'holder', 'until_ms')
  local left_ms = (tonumber(found[2]) or 0) - now_ms
  -- If more is left than a lease has, the clock of Redis was set back. The lease of a dead leader would last too long.
  if left_ms > 0 and left_ms <= lease_ms then return { '', found[1] } end
  fence = string.format('%.0f', math.max((tonumber(last) or 0) + 1, now_us))
end
redis.call('HSET', leader, 'fence', fence, 'holder', holder, 'until_ms', now_ms + lease_ms)
return { fence, holder }
