-- sweep: a bounded batch of what time brings about: expired leases and due retries become ready, and what is held
-- lines up when those who hold it for a moment are gone.
-- With  back gaps history
-- KEYS  none
-- ARGV  lease_ms limit holder slots
--       `holder` (may be empty) is known to be alive for a lease, with so many slots
-- Returns {expired, due, ms until the next one is due (-1: none is leased or delayed), history}
local lease_ms, limit, holder, slots = unpack(ARGV, 1, 4)
lease_ms, limit = tonumber(lease_ms), tonumber(limit)

even_when_full()
-- Nobody swept for a while: Redis may have been away, and nobody could renew. Whoever lives renews within a third
-- of a lease; it gets that time, once: the half millisecond marks a lease that was extended and not renewed since.
local grace_ms = math.floor(lease_ms / 3)
local swept = tonumber(redis.call('GET', SWEPT))
redis.call('SET', SWEPT, now_ms)
if holder ~= '' then
  redis.call('ZREMRANGEBYSCORE', WORKERS, '-inf', now_ms)
  redis.call('ZADD', WORKERS, now_ms + lease_ms, holder .. ' ' .. slots)
end
if swept and now_ms - swept > grace_ms then
  local near = redis.call('ZRANGEBYSCORE', LEASES, '-inf', now_ms + grace_ms, 'WITHSCORES')
  for i = 1, #near, 2 do
    if near[i + 1] % 1 == 0 then redis.call('ZADD', LEASES, now_ms + grace_ms + 0.5, near[i]) end
  end
end

local function take(zset, state, each)
  local found_ms = redis.call('ZRANGEBYSCORE', zset, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, limit)
  local moved = 0
  for i = 1, #found_ms, 2 do
    local id, at_ms = found_ms[i], found_ms[i + 1]
    redis.call('ZREM', zset, id)
    local found = redis.call('HMGET', MESSAGE .. id, 'state', 'queue')
    if found[1] == state then
      each(id, at_ms)
      take_back(id, 'ready')
      back_to_ready(id, found[2])
      moved = moved + 1
    end
  end
  return moved
end

-- Whoever held it is gone, and it may be the cause. The last that was heard of it is its last renewal.
local expired = take(LEASES, 'leased', function(id, at_ms) has_died(id, at_ms - lease_ms) end)
local due = take(DELAYED, 'delayed', function() end)
count('expired', expired)
give_up_gaps(limit)
note_places()
count('late', late)
ring_bells()

local next_ms = -1
for _, zset in ipairs({ LEASES, DELAYED }) do
  local first = redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')[2]
  if first and (next_ms < 0 or first - now_ms < next_ms) then next_ms = math.max(first - now_ms, 0) end
end
return { expired, due, next_ms, history() }
