-- holding: hold a new message while a lower number of its scope is missing or held.
-- With  gaps
-- Writes  held_scopes (gaps)

local function must_wait(scope, number, until_ms)
  if scope == '' then return false end
  if has_gaps(scope, until_ms - now_ms) and has_gap(scope, number, until_ms) then return true end
  return has_held(scope) and redis.call('ZCOUNT', GAP .. scope, '-inf', '(' .. digits(number)) > 0
end

local function hold(id, queue, stored, scope, number, until_ms, group, lanes)
  local seq, keys, place = next_place(), table.concat(lanes, '\n'), place_of(scope, number)
  redis.call('HSET', MESSAGE .. id, 'state', 'held', 'queue', queue, 'lanes', keys, 'seq', seq, 'held', place)
  if group ~= '' then redis.call('HSET', MESSAGE .. id, 'group', group) end
  redis.call('SET', BODY .. id, stored)
  redis.call('ZADD', PENDING .. group_of(queue), seq, id)
  redis.call('ZADD', GAP .. scope, number, id)
  redis.call('ZADD', HELD, until_ms, place)
  held_scopes[scope] = true
end
