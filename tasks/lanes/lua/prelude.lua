-- prelude: what the verbs share. It stands in front of each of them when it is loaded, so that every
-- move between two states is written once. Keys are those of keys.py; TIME is the one clock.

local MESSAGE, BODY, ERRORS, JOURNAL = 'lanes:message:', 'lanes:body:', 'lanes:errors:', 'lanes:journal:'
local LANE, BELL, SEEN = 'lanes:lane:', 'lanes:bell:', 'lanes:seen:'
local LEASES, DELAYED, DEAD = 'lanes:leases', 'lanes:delayed', 'lanes:dead'
local COUNTS, SWEPT, PENDING, SETTLED = 'lanes:counts', 'lanes:swept', 'lanes:pending:', 'lanes:settled'
local HELD, GAP, LAST, PAUSED = 'lanes:held', 'lanes:gap:', 'lanes:last', 'lanes:paused'
local PARKED, TIMES, WORKERS = 'lanes:parked', 'lanes:times', 'lanes:workers'

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = math.floor(now_us / 1000)
local touched = {} -- queues that may have become worth a worker's turn
local settled = {} -- queue -> how many of it were settled in this step
local is_anything_paused = redis.call('EXISTS', PAUSED) == 1

-- A full Redis (maxmemory, noeviction) refuses a script's first write if that could take memory; after one that takes
-- none it lets it finish. What brings messages nearer to their end goes on, for that is what makes room.
local function even_when_full() redis.call('DEL', COUNTS .. ':none') end

local function count(name, by)
  if by ~= 0 then redis.call('HINCRBY', COUNTS, name, by) end
end

-- Greater than any fence this message had, also when Redis forgot the last ones (a failover): its clock went on.
local function next_fence(old)
  return string.format('%.0f', math.max((tonumber(old) or 0) + 1, now_us))
end

local function split(lanes)
  local keys = {}
  for key in string.gmatch(lanes or '', '[^\n]+') do keys[#keys + 1] = key end
  return keys
end

-- The queues of a group share a backlog, and have their turn among those of other groups.
local function group_of(queue) return string.match(queue, '^(.+)%.[^.]*$') or queue end

-- The queues by their groups, both in the order given; `at` is where to begin.
local function grouped(queues)
  local groups, known = {}, {}
  for _, queue in ipairs(queues) do
    local name = group_of(queue)
    if not known[name] then
      known[name] = { at = 1 }
      groups[#groups + 1] = known[name]
    end
    table.insert(known[name], queue)
  end
  return groups
end

-- Takes from one queue of each group in turn, for as long as `goes_on` says and `take` finds something.
local function in_turn(queues, goes_on, take)
  local groups, at = grouped(queues), 1
  while goes_on() and #groups > 0 do
    local group = groups[at]
    if take(group[group.at]) then
      at, group.at = at + 1, group.at + 1
    else
      table.remove(group, group.at)
      if #group == 0 then table.remove(groups, at) end
    end
    if group.at > #group then group.at = 1 end
    if at > #groups then at = 1 end
  end
end

local function distinct(lanes)
  local keys, known = {}, {}
  for _, key in ipairs(split(lanes)) do
    if not known[key] then known[key], keys[#keys + 1] = true, key end
  end
  return keys
end

local function holds(id, fence)
  local found = redis.call('HMGET', MESSAGE .. id, 'state', 'fence', 'queue', 'lanes')
  if found[1] == 'leased' and found[2] == fence then return { queue = found[3], lanes = split(found[4]) } end
end

-- What the journal says of the call at a position.
local function call_of(id, position)
  local noted = redis.call('HGET', JOURNAL .. id, position)
  if not noted then return nil end
  local state, by, what, outcome = string.match(noted, '^(%S+) (%S+) (%S+) (.*)$')
  return { state = state, by = by, what = what, outcome = outcome }
end

local function first_everywhere(id, lanes)
  for _, key in ipairs(lanes) do
    if redis.call('ZRANGE', LANE .. key, 0, 0)[1] ~= id then return false end
  end
  return true
end

local function is_paused(what, name)
  return is_anything_paused and redis.call('HEXISTS', PAUSED, what .. ':' .. name) == 1
end

local function in_paused_lane(id)
  for _, key in ipairs(is_anything_paused and split(redis.call('HGET', MESSAGE .. id, 'lanes')) or {}) do
    if is_paused('lane', key) then return true end
  end
  return false
end

-- A newcomer goes to the end of its queue; what was there before goes back to the front. In a paused lane it waits.
local function to_ready(id, queue, back)
  if in_paused_lane(id) then return redis.call('HSET', MESSAGE .. id, 'state', 'waiting') end
  redis.call('HSET', MESSAGE .. id, 'state', 'ready')
  redis.call(back and 'RPUSH' or 'LPUSH', queue, id)
  touched[queue] = true
end

-- Grows with every message, also when the counter was lost or the clock set back: a newcomer stands behind all others.
local last_place
local function next_place()
  last_place = math.max((last_place or tonumber(redis.call('HGET', COUNTS, 'seq')) or 0) + 1, now_us)
  local seq = string.format('%.0f', last_place)
  redis.call('HSET', COUNTS, 'seq', seq)
  return seq
end

local function line_up(id, queue, lanes, seq)
  redis.call('ZADD', PENDING .. group_of(queue), seq, id)
  for _, key in ipairs(lanes) do redis.call('ZADD', LANE .. key, seq, id) end
  if first_everywhere(id, lanes) then to_ready(id, queue) end
end

-- The first of each lane becomes ready when it is the first of all of its lanes; an id without a message is no first.
local function advance(lanes)
  for _, key in ipairs(lanes) do
    local first = redis.call('ZRANGE', LANE .. key, 0, 0)[1]
    while first do
      local found = redis.call('HMGET', MESSAGE .. first, 'state', 'queue', 'lanes')
      if found[1] == 'waiting' and first_everywhere(first, split(found[3])) then to_ready(first, found[2]) end
      if found[1] then break end
      redis.call('ZREM', LANE .. key, first)
      first = redis.call('ZRANGE', LANE .. key, 0, 0)[1]
    end
  end
end

local function leave(id, lanes)
  for _, key in ipairs(lanes) do redis.call('ZREM', LANE .. key, id) end
  redis.call('ZREM', LEASES, id)
  advance(lanes)
end

local function settle(id, mine)
  redis.call('DEL', MESSAGE .. id, BODY .. id, ERRORS .. id, JOURNAL .. id)
  redis.call('ZREM', PENDING .. group_of(mine.queue), id)
  settled[mine.queue] = (settled[mine.queue] or 0) + 1
  leave(id, mine.lanes)
end

local function count_settled()
  local done = 0
  for queue, by in pairs(settled) do
    redis.call('HINCRBY', SETTLED, queue, by)
    done = done + by
  end
  count('settled', done)
end

-- Every take-back gives a new fence: whoever still holds the old one is refused from here on. Gives the queue.
local function take_back(id, state)
  local found = redis.call('HMGET', MESSAGE .. id, 'fence', 'queue')
  redis.call('HSET', MESSAGE .. id, 'state', state, 'fence', next_fence(found[1]))
  redis.call('HDEL', MESSAGE .. id, 'holder')
  redis.call('ZREM', LEASES, id)
  return found[2]
end

-- Whoever held it died with it. `alive_ms` is the last that was heard of it: recovery is counted from there, until a
-- run ends.
local function has_died(id, alive_ms)
  redis.call('HINCRBY', MESSAGE .. id, 'died', 1)
  redis.call('HSET', MESSAGE .. id, 'alive', math.floor(alive_ms))
end

local function bury(id, lanes, problem)
  local queue = take_back(id, 'buried')
  redis.call('RPUSH', ERRORS .. id, problem)
  redis.call('ZADD', DEAD, now_ms, id)
  redis.call('ZREM', PENDING .. group_of(queue), id)
  leave(id, lanes)
  count('buried', 1)
end

-- What stands in a list of ready ids is an id, unless somebody pushed a whole Celery message onto it, as stock Celery
-- does: that one gets a record under an id of its own, and no lane.
local function id_of(entry, queue)
  if string.sub(entry, 1, 1) ~= '{' or redis.call('EXISTS', MESSAGE .. entry) == 1 then return entry end
  local ok, decoded = pcall(cjson.decode, entry)
  local named = ok and type(decoded) == 'table' and type(decoded.headers) == 'table' and decoded.headers.id
  if type(named) ~= 'string' then named = 'foreign:' .. redis.sha1hex(entry) end
  local id, seq = named, next_fence()
  while redis.call('EXISTS', MESSAGE .. id) == 1 do
    id, seq = named .. ':' .. seq, next_fence(seq)
  end
  redis.call('HSET', MESSAGE .. id, 'state', 'ready', 'queue', queue, 'lanes', '', 'seq', seq)
  redis.call('SET', BODY .. id, entry)
  redis.call('ZADD', PENDING .. group_of(queue), seq, id)
  return id
end

-- Wakes one worker for each queue that has something ready; that worker wakes the next one if it leaves some.
local function ring_bells()
  for queue in pairs(touched) do
    if redis.call('LLEN', queue) > 0 and redis.call('LLEN', BELL .. queue) == 0 then
      redis.call('LPUSH', BELL .. queue, 1)
    end
  end
end
