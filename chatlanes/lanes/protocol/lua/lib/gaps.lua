-- gaps: messages of a scope join their lanes in the order of their numbers although they arrive in another order. A
-- message is held while a lower number is missing, until hold_ms after its own arrival, and while a lower message is
-- held. No message is held for longer than twice hold_ms.
-- With  joining missing
-- Owns  held_scopes highest late

local held_scopes = {} -- scope -> whether any of its messages are held; nil: not known
local highest = {} -- scope -> the highest number that joined its lanes; only scopes of which one did in this step
local late = 0 -- how many messages joined their lanes behind higher numbers

local function has_held(scope)
  if held_scopes[scope] == nil then held_scopes[scope] = scope ~= '' and redis.call('EXISTS', GAP .. scope) == 1 end
  return held_scopes[scope]
end

-- A message is late if a higher number of its scope has joined its lanes before. A number that is lower by a million or
-- more is not late: the numbering of its scope has started again, as that of Telegram's updates does.
local function note_number(scope, number)
  local last = highest[scope] or number_of(redis.call('HGET', LAST, scope))
  if last and number < last and last - number < 1000000 then
    late = late + 1
  else
    highest[scope] = number
  end
end

local function join_held(scope, id, number)
  redis.call('ZREM', GAP .. scope, id)
  redis.call('ZREM', HELD, scope .. ':' .. number)
  local message = redis.call('HMGET', MESSAGE .. id, 'state', 'queue', 'lanes', 'group')
  if message[1] ~= 'held' then return end
  note_number(scope, tonumber(number))
  local queue, lanes, group = message[2], split(message[3]), message[4]
  group = group and limits_of(group) and group
  if group and join_group(queue, group, lanes, redis.call('GET', BODY .. id)) then
    absorb(id, queue)
    return
  end
  local seq = next_place()
  redis.call('HSET', MESSAGE .. id, 'state', 'waiting', 'seq', seq)
  redis.call('HDEL', MESSAGE .. id, 'held')
  if group then start_group(id, queue, group) end
  line_up(id, queue, lanes, seq)
end

-- Held messages of a scope join their lanes in order, up to the first one that must still wait. One without an entry in
-- HELD has waited for long enough: only a lower held message kept it waiting.
local function join_due(scope)
  if not has_held(scope) then return end
  local found = redis.call('ZRANGE', GAP .. scope, 0, 0, 'WITHSCORES')
  while found[1] do
    local id, number = found[1], found[2]
    local until_ms = tonumber(redis.call('ZSCORE', HELD, scope .. ':' .. number) or 0)
    if until_ms > now_ms and has_gap(scope, number, until_ms) then return end
    join_held(scope, id, number)
    found = redis.call('ZRANGE', GAP .. scope, 0, 0, 'WITHSCORES')
  end
  held_scopes[scope] = false
end

-- An append without hold_ms knows that no lower number is missing: held messages with lower numbers join first.
local function close_gaps(scope, number)
  if not has_held(scope) then return end
  local found = redis.call('ZRANGEBYSCORE', GAP .. scope, '-inf', '(' .. digits(number), 'WITHSCORES')
  for i = 1, #found, 2 do join_held(scope, found[i], found[i + 1]) end
  redis.call('ZREMRANGEBYSCORE', MISSING .. scope, '-inf', number + 1)
end

-- Messages that were held for long enough join their lanes, unless a lower one is still held. Called last in a step,
-- because it also writes the highest numbers. Returns ms until the next held message is due, -1 if none is held.
local function expire_holds(limit)
  local scopes = {}
  for _, place in ipairs(redis.call('ZRANGEBYSCORE', HELD, '-inf', now_ms, 'LIMIT', 0, limit)) do
    scopes[string.match(place, '^(.*):%d+$') or ''] = true
    redis.call('ZREM', HELD, place)
  end
  for scope in pairs(scopes) do join_due(scope) end
  for scope, number in pairs(highest) do redis.call('HSET', LAST, scope, number) end
  local first = redis.call('ZRANGE', HELD, 0, 0, 'WITHSCORES')[2]
  return first and math.max(math.ceil(first - now_ms), 0) or -1
end
