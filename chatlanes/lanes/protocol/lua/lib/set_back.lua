-- set_back: when the clock of Redis was set back, move the times that were counted from the clock before. Otherwise leases,
-- retries, groups and held messages would wait for as long as the clock was set back. Timers keep their times, except
-- those that were set for at most a minute from then (timers.lua).

-- Times that are not later than the last sweep were counted from the clock as it is now.
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
local function shorten(zset, lease_ms)
  local until_ms, shortened = now_ms + lease_ms, {}
  for i, member in ipairs(redis.call('ZRANGEBYSCORE', zset, '(' .. digits(until_ms), '+inf')) do
    shortened[2 * i - 1], shortened[2 * i] = digits(until_ms), member
  end
  call_in_batches('ZADD', zset, shortened)
end

-- Returns by how many ms the clock was set back since the last sweep, at least; 0: it was not.
local function undo_set_back(swept_ms, lease_ms)
  if not swept_ms or swept_ms <= now_ms then return 0 end
  shorten(LEASES, lease_ms)
  shorten(WORKERS, lease_ms)
  for _, zset in ipairs({ DELAYED, COLLECTING, HELD }) do move_back(zset, '+inf', swept_ms) end
  move_back(TIMERS, digits(swept_ms + 2 * SHORT_MS), swept_ms, true)
  return swept_ms - now_ms
end
