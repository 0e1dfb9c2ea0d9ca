-- ready: make messages ready: their state, the ready lists of the queues, and the wake-up lists that workers wait on.
-- New entries of the ready lists are written together, by `wake_workers`, which every verb that makes a message ready
-- calls last; or earlier, by `write_ready`.
-- With  paused
-- Owns  new_ready unwritten filled announced

local new_ready = {} -- queue -> ids, in the order in which they became ready
local unwritten = {} -- id -> its record (`record_of`), if the state 'ready' is not written yet
local filled = {} -- queue -> whether its ready list has entries; nil: not known
local announced = {} -- queue -> true if a worker must learn when a group is due

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
  local ids = new_ready[queue] or {}
  new_ready[queue], ids[#ids + 1] = ids, id
end

-- A new message goes to the end of its queue.
local function make_ready(id, queue, record)
  if stay_back(id) then return end
  unwritten[id] = record or record_of(id)
  add_ready(id, queue)
end

-- A message that was in its queue before goes back to the front.
local function return_to_ready(id, queue)
  if stay_back(id) then return end
  redis.call('HSET', MESSAGE .. id, 'state', 'ready')
  redis.call('RPUSH', queue, id)
  filled[queue] = true
end

local function write_ready()
  for queue, ids in pairs(new_ready) do
    for _, id in ipairs(ids) do
      if unwritten[id] then redis.call('HSET', MESSAGE .. id, 'state', 'ready') end
      unwritten[id] = nil
    end
    call_in_batches('LPUSH', queue, ids)
    new_ready[queue], filled[queue] = nil, ids[1] and true or filled[queue]
  end
end

-- Returns the keys that exist, or if `exist` is false those that do not. Usually all or none of them exist: then one
-- EXISTS is enough.
local function filter_existing(keys, exist)
  if keys[1001] then
    local matching = {}
    for i = 1, #keys, 1000 do
      local some = filter_existing({ unpack(keys, i, math.min(i + 999, #keys)) }, exist)
      for _, key in ipairs(some) do matching[#matching + 1] = key end
    end
    return matching
  end
  local found = keys[1] and redis.call('EXISTS', unpack(keys)) or 0
  if found == 0 then return exist and {} or keys end
  if found == #keys then return exist and keys or {} end
  local matching = {}
  for _, key in ipairs(keys) do
    if (redis.call('EXISTS', key) == 1) == exist then matching[#matching + 1] = key end
  end
  return matching
end

-- Wakes one worker for each queue with ready messages. That worker wakes the next one if it leaves some.
local function wake_workers()
  write_ready()
  local bells = {}
  for queue in pairs(announced) do
    if not filled[queue] then bells[#bells + 1] = BELL .. queue end
  end
  for queue, is_filled in pairs(filled) do
    if is_filled then bells[#bells + 1] = BELL .. queue end
  end
  for _, bell in ipairs(filter_existing(bells, false)) do redis.call('LPUSH', bell, 1) end
end
