-- places: let messages join their lanes, behind all others. The places of a step are written together.
-- Open groups have a time at which they are due. Until then, a group that is first in all its lanes is not ready
-- (stay_back). An open group that gets another message behind it in a lane is due at once. A message over its rate
-- (append.lua), and a group of such messages, has a time of the same kind: its turn, noted in the field `turn`. It waits
-- for that even if others are behind it.
-- With  ready

step.occupied = {} -- lane -> whether it has messages; nil: not known

-- A worker is woken if it may have to wait for this time: it learns it from its fetch (turn.lua).
local function set_due(id, queue, due_ms)
  if due_ms <= now_ms then
    redis.call('ZREM', COLLECTING, id)
    return
  end
  step.is_anything_collecting = true
  local is_new = redis.call('ZADD', COLLECTING, due_ms, id) == 1
  if is_new and redis.call('ZRANGE', COLLECTING, 0, 0)[1] == id then step.announced[queue] = true end
end

local function end_collecting(id)
  local due_ms = redis.call('ZSCORE', COLLECTING, id)
  if not due_ms then return end
  local found = redis.call('HMGET', MESSAGE .. id, 'state', 'queue', 'turn')
  if found[3] and tonumber(due_ms) > now_ms then return end
  redis.call('ZREM', COLLECTING, id)
  if found[3] then redis.call('HDEL', MESSAGE .. id, 'turn') end
  if found[1] == 'collecting' then make_ready(id, found[2]) end
end

-- Called before a message joins a lane, if anything is collecting.
local function close_last(key)
  local last = redis.call('ZRANGE', LANE .. key, -1, -1)[1]
  if last then end_collecting(last) end
end

local function end_due(limit)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', COLLECTING, '-inf', now_ms, 'LIMIT', 0, limit)) do
    end_collecting(id)
  end
end

-- Grows with every message, even if the counter was lost or the clock set back: a new message stands behind all others.
local function next_place()
  step.last_place = math.max((step.last_place or number_of(redis.call('HGET', COUNTS, 'seq')) or 0) + 1, now_us)
  return step.last_place
end

-- Returns true if the message is now the first in all its lanes.
local function join_lanes(id, queue, lanes, seq)
  local group, is_first = group_of(queue), true
  local places = step.pending_entries[group] or {}
  local n = #places
  step.pending_entries[group], places[n + 1], places[n + 2] = places, seq, id
  for _, key in ipairs(lanes) do
    local lane = LANE .. key
    if step.is_anything_collecting then close_last(key) end
    local is_new = redis.call('ZADD', lane, seq, id) == 1
    if is_first and (step.occupied[key] == nil or not is_new) then
      is_first = redis.call('ZRANGE', lane, 0, 0)[1] == id
    elseif step.occupied[key] then
      is_first = false
    end
    step.occupied[key] = true
  end
  return is_first
end

local function line_up(id, queue, lanes, seq)
  if join_lanes(id, queue, lanes, seq) then make_ready(id, queue, nil, lanes.limits) end
end

-- Returns false if the message exists already.
local function add_message(id, queue, lanes, stored)
  if redis.call('EXISTS', MESSAGE .. id) == 1 then return false end
  local seq, keys = next_place(), split(lanes)
  redis.call('HSET', MESSAGE .. id, 'state', 'waiting', 'queue', queue, 'lanes', join_keys(keys), 'seq', seq)
  redis.call('SET', BODY .. id, stored)
  line_up(id, queue, keys, seq)
  return true
end

local function write_places()
  if step.last_place then redis.call('HSET', COUNTS, 'seq', step.last_place) end
  for group, places in pairs(step.pending_entries) do call_in_batches('ZADD', PENDING .. group, places) end
  step.pending_entries = {}
end

-- pending_entries: group -> place and id of each message that joined its lanes
-- last_place: the last one that was given to a message; nil: none was
step.pending_entries, step.last_place = put_off(PLACES, write_places), nil

-- A successor is a message that is published while one with its id runs, such as the replacement of a task. It has no
-- record until that run has ended: when the other message is settled or dropped, it joins the end of its lanes. There is
-- at most one for an id.

-- Returns false if no message with this id runs, or there is a successor already.
local function set_successor(id, queue, lanes, stored)
  local state = redis.call('HGET', MESSAGE .. id, 'state')
  if state ~= 'leased' and state ~= 'committing' then return false end
  return redis.call('HSETNX', SUCCESSORS, id, queue .. '\t' .. lanes .. '\t' .. stored) == 1
end

-- The other message has no record any more. Returns false if it has no successor.
local function join_successor(id)
  local found = redis.call('HGET', SUCCESSORS, id)
  if not found then return false end
  redis.call('HDEL', SUCCESSORS, id)
  add_message(id, string.match(found, '^([^\t]*)\t([^\t]*)\t(.*)$'))
  count('appended', 1)
  return true
end

-- The oldest of those that are given back together will be handed out first.
local function write_returned()
  for queue, ids in pairs(step.returned) do
    table.sort(ids, function(a, b) return a[1] > b[1] end)
    for _, each in ipairs(ids) do redis.call('RPUSH', queue, each[2]) end
    step.filled[queue] = true
  end
end

-- queue -> pairs of the seq and the id of messages that go back to its front
step.returned = put_off(RETURNED, write_returned)

-- A message that was in its queue before, and has the state 'ready', goes back to the front.
local function return_to_ready(id, queue, limits)
  if stay_back(id, limits) then return end
  local ids = step.returned[queue] or {}
  step.returned[queue], ids[#ids + 1] = ids, { number_of(redis.call('HGET', MESSAGE .. id, 'seq')) or 0, id }
end

local OPEN_BRACE = string.byte('{')

-- Turns an entry of a ready list into a message id. An entry is an id, or a whole message that a stock Celery client
-- pushed onto the list: that one gets a record under an id of its own, and no lane.
local function id_of(entry, queue)
  if string.byte(entry) ~= OPEN_BRACE or redis.call('EXISTS', MESSAGE .. entry) == 1 then return entry end
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
