-- sweep: make messages with expired leases, due retries and due groups ready, and let due timers join their lanes, and
-- held messages whose time is over, even when their appender is gone. The batch is bounded.
-- With  numbers committing
-- ARGV  lease_ms limit holder slots
--       `holder` (may be empty) counts as alive for one lease, with this many `slots`
-- Returns {expired, due, ms until the next one is due (-1: none is leased, delayed, collected, set or paced),
--       history, ms by which the clock was set back since the last sweep (0: it was not), how many due timers could
--       not be read and were postponed, the version of the texts of one of them}
local lease_ms, limit, holder, slots = unpack(ARGV, 1, 4)
lease_ms, limit = tonumber(lease_ms), tonumber(limit)

-- When the clock of Redis was set back, times that are later than the last sweep were counted from the clock before.
-- They are moved: otherwise leases, retries, groups and held messages would wait for as long as the clock was set back.
-- Timers keep their times, except those that were set for at most a minute from then (timers.lua).
local function move_back(zset, latest_ms, swept_ms, only_marked)
  local moved = {}
  local found = redis.call('ZRANGEBYSCORE', zset, '(' .. digits(swept_ms), latest_ms, 'WITHSCORES')
  for i = 1, #found, 2 do
    if not only_marked or found[i + 1] % 1 > 0 then
      local n = #moved
      moved[n + 1], moved[n + 2] = found[i + 1] - (swept_ms - now_ms), found[i]
    end
  end
  call_in_batches('ZADD', zset, moved)
end

-- Nobody holds a lease for longer than a lease from now.
local function shorten(zset)
  local until_ms, shortened = digits(now_ms + lease_ms), {}
  for i, member in ipairs(redis.call('ZRANGEBYSCORE', zset, '(' .. until_ms, '+inf')) do
    shortened[2 * i - 1], shortened[2 * i] = until_ms, member
  end
  call_in_batches('ZADD', zset, shortened)
end

even_when_full()
local swept = number_of(redis.call('GET', SWEPT))
redis.call('SET', SWEPT, now_ms)
local set_back_ms = math.max((swept or 0) - now_ms, 0)
if set_back_ms > 0 then
  shorten(LEASES)
  shorten(WORKERS)
  for _, zset in ipairs({ DELAYED, COLLECTING, HELD, PACES }) do move_back(zset, '+inf', swept) end
  move_back(TIMERS, digits(swept + 2 * SHORT_MS), swept, true)
end
if holder ~= '' then
  redis.call('ZREMRANGEBYSCORE', WORKERS, '-inf', now_ms)
  redis.call('ZADD', WORKERS, now_ms + lease_ms, holder .. ' ' .. slots)
end
-- After a while without a sweep, Redis may have been away, and no worker could renew. A worker that is alive renews
-- within a third of a lease, so a lease is extended by that time, once: half a millisecond in its expiry marks a lease
-- that was extended and not renewed since.
local grace_ms = math.floor(lease_ms / 3)
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
    local found = redis.call('HGET', MESSAGE .. id, 'state')
    if found == state then
      each(id, at_ms)
      give_back(id)
      moved = moved + 1
    elseif found == 'committing' then
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
if unfinished then finish_portion(unfinished) end
expire_holds(limit)
end_due(limit)
step.is_sweep = true
fire_due(limit)
count('late', step.late)
count('collected', step.collected)
finish()

if step.is_anything_paced then redis.call('ZREMRANGEBYSCORE', PACES, '-inf', now_ms) end
local next_ms = ms_until_due(LEASES, DELAYED, COLLECTING, TIMERS, step.is_anything_paced and PACES)
return { expired, due, next_ms, history(), set_back_ms, step.postponed, step.unknown_version }
