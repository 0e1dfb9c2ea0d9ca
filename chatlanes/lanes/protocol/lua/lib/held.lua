-- held: what a message that is held records of itself.

-- Put back where it was lost. Only the lowest that is held needs a time: behind it one may have waited long enough.
local function mend_held(id, mend)
  local scope, number = string.match(redis.call('HGET', MESSAGE .. id, 'held'), '^(.*):(%d+)$')
  if not redis.call('ZSCORE', GAP .. scope, id) then mend('ZADD', GAP .. scope, number, id) end
  local is_lowest = redis.call('ZRANGE', GAP .. scope, 0, 0)[1] == id
  local place = scope .. ':' .. number
  if is_lowest and not redis.call('ZSCORE', HELD, place) then mend('ZADD', HELD, now_ms, place) end
end
