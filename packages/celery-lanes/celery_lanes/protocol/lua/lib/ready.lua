-- ready: make messages ready: their state, the ready lists of the queues, and the wake-up lists that workers wait on.
-- A message that is first in all its lanes is still not handed out if one of its lanes, its queue or its group of queues
-- is paused, if it is a group that waits for further messages, or if one of its limits has no free permit.
-- A limit is a key of which at most a given number of messages have a permit at a time, over all queues: they are ready,
-- leased or committing. LIMIT <key> is a sorted set of messages. The score -seq: it has a permit. The score seq: it is
-- `gated`, which means that it waits for a permit; the lowest score gets the next one. A message takes its permits in the
-- order of its limits, which are sorted, and waits in one of them at most, so no two wait for each other.

local special = redis.call('EXISTS', PAUSED, COLLECTING, TIMERS, SUCCESSORS, NOTES, MODES, PACES, HELD)
local function is_special(key) return special == 8 or (special > 0 and redis.call('EXISTS', key) == 1) end
step.is_anything_paused, step.is_anything_collecting = is_special(PAUSED), is_special(COLLECTING)
step.is_any_timer_set, step.is_any_succeeded = is_special(TIMERS), is_special(SUCCESSORS)
step.is_anything_paced, step.is_any_held = is_special(PACES), is_special(HELD)

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

-- The limits of lanes as they are stored, or nil.
local function limits_in(lanes)
  return lanes and string.find(lanes, LIMITED, 1, true) and split(lanes).limits or nil
end

-- Returns how many may run, and the key.
local function parse_limit(limit) return string.match(limit, '^.(%d+) (.*)$') end

local function leave_limits(id, limits)
  step.gated[id] = nil
  for _, limit in ipairs(limits or {}) do
    local _, key = parse_limit(limit)
    if redis.call('ZREM', LIMIT .. key, id) == 1 then step.contested[key] = true end
  end
end

-- Lets the message wait for its next permit. Returns false if it has all of them. In a paused limit, none has one but runs.
local function wait_for_permit(id, limits)
  for _, limit in ipairs(limits) do
    local _, key = parse_limit(limit)
    local score = redis.call('ZSCORE', LIMIT .. key, id)
    if not score or tonumber(score) > 0 then
      redis.call('ZADD', LIMIT .. key, number_of(redis.call('HGET', MESSAGE .. id, 'seq')) or now_us, id)
      step.contested[key] = true
      return true
    end
  end
  return false
end

local function is_gated(id, limits)
  for _, limit in ipairs(limits) do
    local _, key = parse_limit(limit)
    if is_paused('lane', key) then leave_limits(id, limits) end
  end
  if not wait_for_permit(id, limits) then return false end
  redis.call('HSET', MESSAGE .. id, 'state', 'gated')
  step.gated[id] = true
  return true
end

-- Instead of becoming ready, a message in a paused lane waits, one of a lane whose rate is used up is delayed, a group
-- that is not due yet is collected, and one of a limit without a free permit is gated. Returns true if so. A stopped
-- message, which will not run, has no rate and needs no permit. `limits`: those of the message, if it has any.
local function is_kept_back(id, limits)
  local found = (step.is_anything_paused or step.is_anything_paced or limits)
    and redis.call('HMGET', MESSAGE .. id, 'lanes', 'stopped')
  local lanes = found and split(found[1])
  local until_ms = lanes and not found[2] and paced_until(lanes)
  local due_ms = step.is_anything_collecting and redis.call('ZSCORE', COLLECTING, id)
  if lanes and in_paused_lane(lanes) then
    redis.call('HSET', MESSAGE .. id, 'state', 'waiting')
  elseif until_ms then
    redis.call('HSET', MESSAGE .. id, 'state', 'delayed')
    redis.call('ZADD', DELAYED, until_ms, id)
  elseif due_ms and tonumber(due_ms) > now_ms then
    redis.call('HSET', MESSAGE .. id, 'state', 'collecting')
  else
    if due_ms then
      redis.call('ZREM', COLLECTING, id)
      redis.call('HDEL', MESSAGE .. id, 'turn')
    end
    return limits ~= nil and not found[2] and is_gated(id, limits)
  end
  leave_limits(id, limits)
  return true
end

local function stay_back(id, limits)
  local may = step.is_anything_paused or step.is_anything_paced or step.is_anything_collecting or limits
  return may and is_kept_back(id, limits)
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
local function make_ready(id, queue, record, limits)
  if stay_back(id, limits) then return end
  step.unwritten[id] = record or record_of(id)
  add_ready(id, queue)
end

-- The oldest message that waits in a limit, and its seq, or nothing.
local function first_gated(key)
  return unpack(redis.call('ZRANGEBYSCORE', LIMIT .. key, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1))
end

-- The free permits of a limit are given to the messages that wait in it.
local function admit_first(key)
  local id, seq = first_gated(key)
  while id do
    local record, most = record_of(id, 'queue', 'lanes'), nil
    local limits = record[1] == 'gated' and limits_in(record[5]) or {}
    for _, limit in ipairs(limits) do
      local its_most, its_key = parse_limit(limit)
      if its_key == key then most = tonumber(its_most) end
    end
    if not most then
      redis.call('ZREM', LIMIT .. key, id)
    elseif is_paused('lane', key) or redis.call('ZCOUNT', LIMIT .. key, '-inf', '(0') >= most then
      return
    else
      redis.call('ZADD', LIMIT .. key, -seq, id)
      if not wait_for_permit(id, limits) then
        step.gated[id], step.unwritten[id] = nil, record
        add_ready(id, record[4])
      end
    end
    id, seq = first_gated(key)
  end
end

-- In the order in which a message takes its permits: so the oldest one gets them, in whatever order they became free.
local function give_first_permits()
  local first
  for key in pairs(step.contested) do
    if not first or key < first then first = key end
  end
  step.contested[first] = nil
  admit_first(first)
end

local function give_permits()
  while next(step.contested) do give_first_permits() end
end

local function write_admissions()
  give_permits()
  local n = 0
  for _ in pairs(step.gated) do n = n + 1 end
  count('gated', n)
end

-- contested: key of a limit -> true, if its permits may have to be given: one was left, or a message waits for one
-- gated: id -> true, if the message waits for a permit since this step: it counts as gated if it still does in the end
step.contested, step.gated = put_off(ADMISSIONS, write_admissions), {}

local function write_lists()
  for queue, ids in pairs(step.new_ready) do
    for _, id in ipairs(ids) do
      if step.unwritten[id] then redis.call('HSET', MESSAGE .. id, 'state', 'ready') end
      step.unwritten[id] = nil
    end
    call_in_batches('LPUSH', queue, ids)
    step.new_ready[queue], step.filled[queue] = nil, ids[1] and true or step.filled[queue]
  end
end

local function write_ready()
  give_permits()
  write_lists()
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

-- Notes which queues that are not paused have entries in their ready lists, unless it is known.
local function note_filled(queues)
  local unknown = {}
  for _, queue in ipairs(queues) do
    if step.filled[queue] == nil and not is_closed(queue) then unknown[#unknown + 1] = queue end
  end
  note_existing(step.filled, '', unknown)
end
