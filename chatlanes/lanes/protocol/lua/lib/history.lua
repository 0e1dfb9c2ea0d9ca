-- history: the identity of this database and its totals.

-- A database without an identity gets one: the current time. The number of pending messages is computed from the
-- totals, which costs less than counting each group of queues.
local function history()
  local identity = redis.call('GET', IDENTITY)
  if not identity then
    identity = string.format('%.0f', now_us)
    redis.call('SET', IDENTITY, identity)
  end
  local totals = redis.call('HMGET', COUNTS, 'appended', 'settled', 'buried', 'replayed')
  local appended, settled = number_of(totals[1]) or 0, number_of(totals[2]) or 0
  local pending = appended - settled - (number_of(totals[3]) or 0) + (number_of(totals[4]) or 0)
  return { identity, appended, settled, math.max(pending, 0) }
end
