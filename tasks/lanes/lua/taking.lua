-- taking: ids out of the lists of ready ones, several of each at a time; what became ready in this step comes after them,
-- and need not be written down before.
-- With  ready foreign

local taken_out = {} -- queue -> entries, from `at` on not looked at yet

local function take_out(queue, n)
  if n < 2 then
    local entry = redis.call('RPOP', queue)
    filled[queue] = nil
    if not entry then filled[queue] = false end
    return entry
  end
  local entries = redis.call('RPOP', queue, n) or {}
  filled[queue] = nil
  if #entries < n then filled[queue] = false end
  taken_out[queue], entries.at = entries, 2
  return entries[1]
end

local function next_entry(queue, wanted)
  local entries = taken_out[queue]
  local entry = entries and entries[entries.at]
  if entry then
    entries.at = entries.at + 1
    return entry
  end
  return filled[queue] ~= false and take_out(queue, math.floor(wanted))
end

-- The next id of a queue, of which about so many are wanted; nil when there is none.
local function next_ready(queue, wanted)
  local entry = next_entry(queue, wanted)
  if entry then return id_of(entry, queue) end
  return entering[queue] and table.remove(entering[queue], 1)
end

-- To the front of its queue.
local function put_back(queue, id)
  if unwritten[id] then redis.call('HSET', MESSAGE .. id, 'state', 'ready') end
  unwritten[id] = nil
  redis.call('RPUSH', queue, id)
  filled[queue] = true
end

-- What was taken out and not looked at.
local function put_back_rest()
  for queue, entries in pairs(taken_out) do
    for i = #entries, entries.at, -1 do put_back(queue, entries[i]) end
  end
end
