-- ready: make messages ready: their state, the ready lists of the queues, and the wake-up lists that workers wait on.
-- A message that is first in all its lanes is still not handed out if one of its lanes, its queue or its group of queues
-- is paused, or if it is a group that waits for further messages.

local special = redis.call('EXISTS', PAUSED, COLLECTING, TIMERS, SUCCESSORS, NOTES, MODES, PACES)
local function is_special(key) return special == 7 or (special > 0 and redis.call('EXISTS', key) == 1) end
step.is_anything_paused, step.is_anything_collecting = is_special(PAUSED), is_special(COLLECTING)
step.is_any_timer_set, step.is_any_succeeded = is_special(TIMERS), is_special(SUCCESSORS)
step.is_anything_paced = is_special(PACES)

local function is_paused(what, name)
  return step.is_anything_paused and redis.call('HEXISTS', PAUSED, what .. ':' .. name) == 1
end

local function is_closed(queue)
  return step.is_anything_paused and (is_paused('queue', queue) or is_paused('group', group_of(queue)))
end

local function in_paused_lane(lanes)
  for _, key in ipairs(step.is_anything_paused and lanes or {}) do
    if is_paused('lane', key) then return true end
  end
  return false
end

-- Returns the time until which the rates of these lanes keep their message waiting, ms, or nil.
local function paced_until(lanes)
  if not (step.is_anything_paced and lanes.paces) then return nil end
  local until_ms, i = now_ms, 0
  for interval_ms in string.gmatch(lanes.paces, '%d+') do
    i = i + 1
    local next_ms = interval_ms ~= '0' and lanes[i] and redis.call('ZSCORE', PACES, lanes[i])
    until_ms = math.max(until_ms, next_ms or 0)
  end
  return until_ms > now_ms and until_ms or nil
end

-- Instead of becoming ready, a message in a paused lane waits, one of a lane whose rate is used up is delayed, and a
-- group that is not due yet is collected. Returns true if so. A stopped message, which will not run, has no rate.
local function stay_back(id)
  local found = (step.is_anything_paused or step.is_anything_paced)
    and redis.call('HMGET', MESSAGE .. id, 'lanes', 'stopped')
  local lanes = found and split(found[1])
  if lanes and in_paused_lane(lanes) then
    redis.call('HSET', MESSAGE .. id, 'state', 'waiting')
    return true
  end
  local until_ms = lanes and not found[2] and paced_until(lanes)
  if until_ms then
    redis.call('HSET', MESSAGE .. id, 'state', 'delayed')
    redis.call('ZADD', DELAYED, until_ms, id)
    return true
  end
  local due_ms = step.is_anything_collecting and redis.call('ZSCORE', COLLECTING, id)
  if not due_ms then return false end
  if tonumber(due_ms) > now_ms then
    redis.call('HSET', MESSAGE .. id, 'state', 'collecting')
    return true
  end
  redis.call('ZREM', COLLECTING, id)
  redis.call('HDEL', MESSAGE .. id, 'turn')
  return false
end

step.unwritten = {} -- id -> its record (`record_of`), if the state 'ready' is not written yet

-- Returns state, fence, seq, and the fields asked for. Each field costs about a fifth of a command.
local function record_of(id, ...) return redis.call('HMGET', MESSAGE .. id, 'state', 'fence', 'seq', ...) end

-- `known` may be a lane in which the message is known to be the first.
local function is_first_in_all(id, lanes, known)
  for _, key in ipairs(lanes) do
    if key ~= known and redis.call('ZRANGE', LANE .. key, 0, 0)[1] ~= id then return false end
  end
  return true
end

local function add_ready(id, queue)
  local ids = step.new_ready[queue] or {}
  step.new_ready[queue], ids[#ids + 1] = ids, id
end

-- A new message goes to the end of its queue.
local function make_ready(id, queue, record)
  if stay_back(id) then return end
  step.unwritten[id] = record or record_of(id)
  add_ready(id, queue)
end

-- A message that was in its queue before, and has the state 'ready', goes back to the front.
local function return_to_ready(id, queue)
  if stay_back(id) then return end
  redis.call('RPUSH', queue, id)
  step.filled[queue] = true
end

local function write_ready()
  for queue, ids in pairs(step.new_ready) do
    for _, id in ipairs(ids) do
      if step.unwritten[id] then redis.call('HSET', MESSAGE .. id, 'state', 'ready') end
      step.unwritten[id] = nil
    end
    call_in_batches('LPUSH', queue, ids)
    step.new_ready[queue], step.filled[queue] = nil, ids[1] and true or step.filled[queue]
  end
end

-- Notes which of these keys exist. Usually all or none of a few keys do: then one EXISTS is enough.
local function note_existing(known, prefix, names)
  for i = 1, #names, 25 do
    local keys = {}
    for j = i, math.min(i + 24, #names) do keys[#keys + 1] = prefix .. names[j] end
    local found = redis.call('EXISTS', unpack(keys))
    for j, key in ipairs(keys) do
      known[names[i + j - 1]] = found == #keys or (found > 0 and redis.call('EXISTS', key) == 1)
    end
  end
end

-- Wakes one worker for each queue with ready messages. That worker wakes the next one if it leaves some.
local function wake_workers()
  write_ready()
  local queues, has_bell = {}, {}
  for queue in pairs(step.announced) do
    if not step.filled[queue] then queues[#queues + 1] = queue end
  end
  for queue, is_filled in pairs(step.filled) do
    if is_filled then queues[#queues + 1] = queue end
  end
  note_existing(has_bell, BELL, queues)
  for _, queue in ipairs(queues) do
    if not has_bell[queue] then redis.call('LPUSH', BELL .. queue, 1) end
  end
end

-- new_ready: queue -> ids, in the order in which they became ready
-- filled: queue -> whether its ready list has entries; nil: not known
-- announced: queue -> true if a worker must learn when a group is due
step.new_ready, step.filled, step.announced = put_off(READY, wake_workers), {}, {}

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
