-- taking: ids out of the lists of ready ones, several of each at a time. What became ready in this step comes after
-- them, and need not be written down before.
-- With  ready foreign
-- Owns  taken_out
-- Writes  entering (ready), filled (ready), unwritten (ready)

local taken_out = {} -- queue -> entries, from `at` on not looked at yet

-- The next id of a queue, of which so many are wanted until there is room for no more; nil or false when there is none.
local function next_ready(queue, wanted)
  local entries = taken_out[queue]
  local entry = entries and entries[entries.at]
  if entry then
    entries.at = entries.at + 1
  elseif filled[queue] ~= false then
    wanted = math.ceil(wanted) -- its share, where some of the others get one less
    entries = redis.call('RPOP', queue, wanted) or {}
    entry, entries.at, taken_out[queue] = entries[1], 2, entries
    if #entries == wanted then filled[queue] = nil else filled[queue] = false end
  end
  if entry then return id_of(entry, queue) end
  return entering[queue] and table.remove(entering[queue], 1)
end

-- To the fronts of their queues: what was not looked at, and before it these: each a queue and an id.
local function put_back(looked_at)
  for queue, entries in pairs(taken_out) do
    for i = #entries, entries.at, -1 do
      redis.call('RPUSH', queue, entries[i])
      filled[queue] = true
    end
  end
  for i = #looked_at, 1, -1 do
    local queue, id = unpack(looked_at[i])
    if unwritten[id] then redis.call('HSET', MESSAGE .. id, 'state', 'ready') end
    redis.call('RPUSH', queue, id)
    unwritten[id], filled[queue] = nil, true
  end
end
