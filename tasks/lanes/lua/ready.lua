-- ready: when a message becomes ready, the lists of ready ids, and the bells that wake workers for them.
-- Those that become ready are entered into the lists together, by `ring_bells`, which every verb that makes something
-- ready calls last; or before, by `enter_ready`.

local entering = {} -- queue -> ids, in the order in which they became ready
local unwritten = {} -- id -> true, for each of them whose record does not say yet that it is ready
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

-- A newcomer goes to the end of its queue; what was there before goes back to the front. In a paused lane it waits.
local function to_ready(id, queue, back)
  if is_anything_paused and in_paused_lane(split(redis.call('HGET', MESSAGE .. id, 'lanes'))) then
    return redis.call('HSET', MESSAGE .. id, 'state', 'waiting')
  end
  if back then
    redis.call('HSET', MESSAGE .. id, 'state', 'ready')
    redis.call('RPUSH', queue, id)
    filled[queue] = true
  else
    unwritten[id] = true
    enter(id, queue)
  end
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
