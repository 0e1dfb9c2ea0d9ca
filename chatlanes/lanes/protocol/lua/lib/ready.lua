-- ready: when a message becomes ready, the lists of ready ids, and the bells that wake workers for them.
-- Those that become ready are entered into the lists together, by `ring_bells`, which every verb that makes something
-- ready calls last; or before, by `enter_ready`.
-- Owns  entering unwritten filled is_anything_paused

local entering = {} -- queue -> ids, in the order in which they became ready
local unwritten = {} -- id -> its record (`record_of`), for each of them whose record does not say yet that it is ready
local filled = {} -- queue -> whether there is something in its list, where that is known
local is_anything_paused = redis.call('EXISTS', PAUSED) == 1

local function is_paused(what, name)
  return is_anything_paused and redis.call('HEXISTS', PAUSED, what .. ':' .. name) == 1
end

local function in_paused_lane(lanes)
  for _, key in ipairs(is_anything_paused and lanes or {}) do
    if is_paused('lane', key) then return true end
  end
  return false
end

-- Of its record: state, fence, seq, and whatever else is asked for. Each field costs about a fifth of a command.
local function record_of(id, ...) return redis.call('HMGET', MESSAGE .. id, 'state', 'fence', 'seq', ...) end

-- `known` may be a lane that it is known to be the first of.
local function first_everywhere(id, lanes, known)
  for _, key in ipairs(lanes) do
    if key ~= known and redis.call('ZRANGE', LANE .. key, 0, 0)[1] ~= id then return false end
  end
  return true
end

local function enter(id, queue)
  local ids = entering[queue] or {}
  entering[queue], ids[#ids + 1] = ids, id
end

-- In a paused lane it waits. Else a newcomer goes to the end of its queue, what was there before back to the front.
local function is_kept_waiting(id)
  if not is_anything_paused or not in_paused_lane(split(redis.call('HGET', MESSAGE .. id, 'lanes'))) then return false end
  redis.call('HSET', MESSAGE .. id, 'state', 'waiting')
  return true
end

local function to_ready(id, queue, record)
  if is_kept_waiting(id) then return end
  unwritten[id] = record or record_of(id)
  enter(id, queue)
end

local function back_to_ready(id, queue)
  if is_kept_waiting(id) then return end
  redis.call('HSET', MESSAGE .. id, 'state', 'ready')
  redis.call('RPUSH', queue, id)
  filled[queue] = true
end

local function enter_ready()
  for queue, ids in pairs(entering) do
    for _, id in ipairs(ids) do
      if unwritten[id] then redis.call('HSET', MESSAGE .. id, 'state', 'ready') end
      unwritten[id] = nil
    end
    together('LPUSH', queue, ids)
    entering[queue], filled[queue] = nil, ids[1] and true or filled[queue]
  end
end

-- Wakes one worker for each queue that has something ready; that worker wakes the next one if it leaves some.
local function ring_bells()
  enter_ready()
  local bells = {}
  for queue, is_filled in pairs(filled) do
    if is_filled then bells[#bells + 1] = BELL .. queue end
  end
  for _, bell in ipairs(which(bells, false)) do redis.call('LPUSH', bell, 1) end
end
