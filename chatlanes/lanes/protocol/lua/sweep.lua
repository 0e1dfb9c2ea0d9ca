-- sweep: make messages with expired leases, due retries and due groups ready, and let due timers join their lanes, and
-- held messages whose time is over, also when their appender is gone. The batch is bounded.
-- With  gaps history committing set_back
-- KEYS  none
-- ARGV  lease_ms limit holder slots
--       `holder` (may be empty) counts as alive for one lease, with this many `slots`
-- Returns {expired, due, ms until the next one is due (-1: none is leased, delayed, collected or set),
--       history, ms by which the clock was set back since the last sweep (0: it was not)}
local lease_ms, limit, holder, slots = unpack(ARGV, 1, 4)
lease_ms, limit = tonumber(lease_ms), tonumber(limit)

even_when_full()
-- After a while without a sweep, Redis may have been away, and no worker could renew. A worker that is alive renews
-- within a third of a lease, so a lease is extended by that time, once: half a millisecond in its expiry marks a lease
-- that was extended and not renewed since.
local grace_ms = math.floor(lease_ms / 3)
local swept = number_of(redis.call('GET', SWEPT))
redis.call('SET', SWEPT, now_ms)
local set_back_ms = undo_set_back(swept, lease_ms)
if holder ~= '' then
  redis.call('ZREMRANGEBYSCORE', WORKERS, '-inf', now_ms)
  redis.call('ZADD', WORKERS, now_ms + lease_ms, holder .. ' ' .. slots)
end
if swept and now_ms - swept > grace_ms then
  local near = redis.call('ZRANGEBYSCORE', LEASES, '-inf', now_ms + grace_ms, 'WITHSCORES')
  local extended = {}
  for i = 1, #near, 2 do
    if near[i + 1] % 1 == 0 then
      extended[#extended + 1] = now_ms + grace_ms + 0.5
      extended[#extended + 1] = near[i]
    end
  end
  call_in_batches('ZADD', LEASES, extended)
end

local unfinished -- a large commit whose worker does not continue
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
      return_to_ready(id, found[2])
      moved = moved + 1
    elseif found[1] == 'committing' then
      redis.call('ZADD', zset, at_ms, id)
      unfinished = unfinished or id
    end
  end
  return moved
end

-- The holder is gone, and the message may be the cause. The last renewal is the last sign of life of the holder.
local expired = take(LEASES, 'leased', function(id, at_ms) count_death(id, at_ms - lease_ms) end)
local due = take(DELAYED, 'delayed', function() end)
count('expired', expired)
if unfinished then
  finish_portion(unfinished)
  flush_removals()
end
expire_holds(limit)
end_due(limit)
fire_due(limit)
write_places()
count('late', late)
count('collected', collected)
wake_workers()

local next_ms = -1
for _, zset in ipairs({ LEASES, DELAYED, COLLECTING, TIMERS }) do
  local first = redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')[2]
  if first and (next_ms < 0 or first - now_ms < next_ms) then next_ms = math.max(math.ceil(first - now_ms), 0) end
end
return { expired, due, next_ms, history(), set_back_ms }
