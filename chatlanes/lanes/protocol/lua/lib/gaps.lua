-- gaps: messages of a scope line up in the order of their numbers although they arrive in another order. A message is
-- held while a lower number is missing, until hold_ms after its own arrival, and behind every lower one that is held.
-- No message is held for longer than twice hold_ms.
-- With  places missing
-- Owns  held_scopes highest late

local held_scopes = {} -- scope -> whether any of it are held, where that is known
local highest = {} -- scope -> number, of those that lined up in this step
local late = 0 -- how many lined up behind higher numbers

local function has_held(scope)
  if held_scopes[scope] == nil then held_scopes[scope] = scope ~= '' and redis.call('EXISTS', GAP .. scope) == 1 end
  return held_scopes[scope]
end

local function must_wait(scope, number, until_ms)
  if scope == '' then return false end
  if has_gaps(scope) and has_gap(scope, number, until_ms) then return true end
  return has_held(scope) and redis.call('ZCOUNT', GAP .. scope, '-inf', '(' .. digits(number)) > 0
end

local function hold(id, queue, stored, scope, number, until_ms, lanes)
  local seq, keys, place = next_place(), table.concat(lanes, '\n'), place_of(scope, number)
  redis.call('HSET', MESSAGE .. id, 'state', 'held', 'queue', queue, 'lanes', keys, 'seq', seq, 'held', place)
  redis.call('SET', BODY .. id, stored)
  redis.call('ZADD', PENDING .. group_of(queue), seq, id)
  redis.call('ZADD', GAP .. scope, number, id)
  redis.call('ZADD', HELD, until_ms, place)
  held_scopes[scope] = true
end

-- It is late when a higher number of its scope stands in its lanes already. One that is lower by far is not: its scope
-- has begun anew, as Telegram's update ids do.
local function note_number(scope, number)
  local last = highest[scope] or tonumber(redis.call('HGET', LAST, scope))
  if last and number < last and last - number < 1000000 then
    late = late + 1
  else
    highest[scope] = number
  end
end

local function let_go(scope, id, number)
  redis.call('ZREM', GAP .. scope, id)
  redis.call('ZREM', HELD, scope .. ':' .. number)
  local message = redis.call('HMGET', MESSAGE .. id, 'state', 'queue', 'lanes')
  if message[1] ~= 'held' then return end
  local seq = next_place()
  redis.call('HSET', MESSAGE .. id, 'state', 'waiting', 'seq', seq)
  redis.call('HDEL', MESSAGE .. id, 'held')
  line_up(id, message[2], split(message[3]), seq)
  note_number(scope, tonumber(number))
end

-- Those of a scope that wait for nothing more line up, in their order, up to the first one that does. One without an
-- entry in HELD has waited for long enough, and is left behind a lower one.
local function advance(scope)
  if not has_held(scope) then return end
  local found = redis.call('ZRANGE', GAP .. scope, 0, 0, 'WITHSCORES')
  while found[1] do
    local id, number = found[1], found[2]
    local until_ms = tonumber(redis.call('ZSCORE', HELD, scope .. ':' .. number) or 0)
    if until_ms > now_ms and has_gap(scope, number, until_ms) then return end
    let_go(scope, id, number)
    found = redis.call('ZRANGE', GAP .. scope, 0, 0, 'WITHSCORES')
  end
  held_scopes[scope] = false
end

-- Who does not hold knows that nothing lower is missing: what is held below its number goes before it.
local function close_gaps(scope, number)
  if not has_held(scope) then return end
  local found = redis.call('ZRANGEBYSCORE', GAP .. scope, '-inf', '(' .. digits(number), 'WITHSCORES')
  for i = 1, #found, 2 do let_go(scope, found[i], found[i + 1]) end
  redis.call('ZREMRANGEBYSCORE', MISSING .. scope, '-inf', number + 1)
end

-- What was held for long enough lines up, unless a lower one is still held. Called last in a step: it writes down the
-- highest numbers. Returns ms until the next one is due, -1 when none is held.
local function give_up_gaps(limit)
  local scopes = {}
  for _, place in ipairs(redis.call('ZRANGEBYSCORE', HELD, '-inf', now_ms, 'LIMIT', 0, limit)) do
    scopes[string.match(place, '^(.*):%d+$')] = true
    redis.call('ZREM', HELD, place)
  end
  for scope in pairs(scopes) do advance(scope) end
  for scope, number in pairs(highest) do redis.call('HSET', LAST, scope, number) end
  local first = redis.call('ZRANGE', HELD, 0, 0, 'WITHSCORES')[2]
  return first and math.max(math.ceil(first - now_ms), 0) or -1
end
