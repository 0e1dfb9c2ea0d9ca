-- gaps: messages of a scope that line up in the order of their numbers, though they come in another one. One whose
-- predecessor is missing is held for a moment; what is missing then is waited for no longer.
-- With  places seen

local held_scopes = {} -- scope -> whether any of it are held
local highest = {} -- scope -> number, of those that lined up in this step
local late = 0 -- so many lined up behind higher numbers

local function place_of(scope, number) return scope .. ':' .. string.format('%.0f', number) end

-- Whether any of a scope are held: mostly none, and asked once.
local function has_held(scope)
  if held_scopes[scope] == nil then held_scopes[scope] = scope ~= '' and redis.call('EXISTS', GAP .. scope) == 1 end
  return held_scopes[scope]
end

-- Its predecessor has not been seen, or waits itself.
local function has_gap(scope, number, block)
  if scope == '' or number == 0 then return false end
  if not is_remembered(scope, number - 1, block) then return true end
  return has_held(scope) and redis.call('ZCOUNT', GAP .. scope, number - 1, number - 1) > 0
end

-- Whoever comes next waits too, also behind what need not wait itself: it has no lanes.
local function hold_place(id, scope, number, until_ms)
  redis.call('ZADD', GAP .. scope, number, id)
  redis.call('ZADD', HELD, until_ms, place_of(scope, number))
  held_scopes[scope] = true
end

local function hold(id, queue, stored, held_as, lanes)
  local seq, keys = next_place(), table.concat(lanes, '\n')
  redis.call('HSET', MESSAGE .. id, 'state', 'held', 'queue', queue, 'lanes', keys, 'seq', seq, 'held', held_as)
  redis.call('SET', BODY .. id, stored)
  redis.call('ZADD', PENDING .. group_of(queue), seq, id)
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

-- Those of a scope that are held and have these numbers, and those that follow without a gap, line up in their order.
-- Where only a number stands in the place of a message, its message was not held, or is none.
local function let_go(scope, from, to)
  local found = redis.call('ZRANGEBYSCORE', GAP .. scope, from, to, 'WITHSCORES')
  while found[1] do
    for i = 1, #found, 2 do
      local id, number = found[i], found[i + 1]
      redis.call('ZREM', GAP .. scope, id)
      redis.call('ZREM', HELD, scope .. ':' .. number)
      local message = redis.call('HMGET', MESSAGE .. id, 'state', 'queue', 'lanes')
      if message[1] == 'held' then
        local seq = next_place()
        redis.call('HSET', MESSAGE .. id, 'state', 'waiting', 'seq', seq)
        redis.call('HDEL', MESSAGE .. id, 'held')
        line_up(id, message[2], split(message[3]), seq)
        note_number(scope, tonumber(number))
      end
      to = tonumber(number)
    end
    found = redis.call('ZRANGEBYSCORE', GAP .. scope, to + 1, to + 1, 'WITHSCORES')
  end
end

-- What was held for long enough goes, and all with lower numbers before it: nobody waits for what is missing any more.
-- The last thing that is done with numbers in a step, which is why it writes down the highest.
-- Returns ms until the next one is due, -1 when none is held.
local function give_up_gaps(limit)
  local upto = {}
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', HELD, '-inf', now_ms, 'LIMIT', 0, limit)) do
    local scope, number = string.match(member, '^(.*):(%d+)$')
    upto[scope] = math.max(upto[scope] or 0, tonumber(number))
    redis.call('ZREM', HELD, member)
  end
  for scope, number in pairs(upto) do let_go(scope, '-inf', number) end
  for scope, number in pairs(highest) do redis.call('HSET', LAST, scope, number) end
  local first = redis.call('ZRANGE', HELD, 0, 0, 'WITHSCORES')[2]
  return first and math.max(math.ceil(first - now_ms), 0) or -1
end
