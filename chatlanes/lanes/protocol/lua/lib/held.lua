-- held: repair the entries of a held message.

-- Adds missing entries through `fix`. Only the lowest held message of a scope needs an entry in HELD: a higher one has
-- none once it has waited for long enough.
local function fix_held(id, fix)
  local scope, number = string.match(redis.call('HGET', MESSAGE .. id, 'held'), '^(.*):(%d+)$')
  if not redis.call('ZSCORE', GAP .. scope, id) then fix('ZADD', GAP .. scope, number, id) end
  local is_lowest = redis.call('ZRANGE', GAP .. scope, 0, 0)[1] == id
  local place = scope .. ':' .. number
  if is_lowest and not redis.call('ZSCORE', HELD, place) then fix('ZADD', HELD, now_ms, place) end
end
