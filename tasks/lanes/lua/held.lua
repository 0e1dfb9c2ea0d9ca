-- held: what a message that is held records of itself.

-- Put back where it was lost.
local function mend_held(id, mend)
  local scope, number = string.match(redis.call('HGET', MESSAGE .. id, 'held'), '^(.*):(%d+)$')
  if not redis.call('ZSCORE', GAP .. scope, id) then mend('ZADD', GAP .. scope, number, id) end
  if not redis.call('ZSCORE', HELD, scope .. ':' .. number) then mend('ZADD', HELD, now_ms, scope .. ':' .. number) end
end
