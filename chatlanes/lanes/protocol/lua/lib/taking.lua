-- taking: take ids from the ready lists, several at a time. Messages that became ready in this step come after them,
-- and need not be written to the lists before.
-- With  ready foreign
-- Owns  popped
-- Writes  new_ready (ready), filled (ready), unwritten (ready)

local popped = {} -- queue -> entries; those from index `at` on are not used yet

-- Returns the next id of a queue, nil or false if there is none. `wanted`: how many the caller may take from the queue.
local function next_ready(queue, wanted)
  local entries = popped[queue]
  local entry = entries and entries[entries.at]
  if entry then
    entries.at = entries.at + 1
  elseif filled[queue] ~= false then
    wanted = math.ceil(wanted) -- rounded up: some other queue gets one less
    entries = redis.call('RPOP', queue, wanted) or {}
    entry, entries.at, popped[queue] = entries[1], 2, entries
    if #entries == wanted then filled[queue] = nil else filled[queue] = false end
  end
  if entry then return id_of(entry, queue) end
  return new_ready[queue] and table.remove(new_ready[queue], 1)
end

-- Puts back to the front of their queues: the popped entries that were not used, and before them `returned`, which are
-- pairs of a queue and an id.
local function put_back(returned)
  for queue, entries in pairs(popped) do
    for i = #entries, entries.at, -1 do
      redis.call('RPUSH', queue, entries[i])
      filled[queue] = true
    end
  end
  for i = #returned, 1, -1 do
    local queue, id = unpack(returned[i])
    if unwritten[id] then redis.call('HSET', MESSAGE .. id, 'state', 'ready') end
    redis.call('RPUSH', queue, id)
    unwritten[id], filled[queue] = nil, true
  end
end
