-- places: let messages join their lanes, behind all others. The places of a step are written together by
-- `write_places`, which every verb that lets messages join lanes calls.
-- With  collecting
-- Owns  last_place pending_entries entries_of occupied

local last_place
local pending_entries = {} -- group -> place and id of each message that joined its lanes
local entries_of = {} -- queue -> the list of its group in pending_entries
local occupied = {} -- lane -> whether it has messages; nil: not known

local function distinct(lanes)
  local all = split(lanes)
  if not all[2] then return all end
  local keys, known = {}, {}
  for _, key in ipairs(all) do
    if not known[key] then known[key], keys[#keys + 1] = true, key end
  end
  return keys
end

-- Grows with every message, also if the counter was lost or the clock set back: a new message stands behind all others.
local function next_place()
  last_place = math.max((last_place or number_of(redis.call('HGET', COUNTS, 'seq')) or 0) + 1, now_us)
  return last_place
end

-- Returns true if the message is now the first in all its lanes.
local function join_lanes(id, queue, lanes, seq)
  local places, is_first = entries_of[queue], true
  if not places then
    local group = group_of(queue)
    places = pending_entries[group] or {}
    pending_entries[group], entries_of[queue] = places, places
  end
  local n = #places
  places[n + 1], places[n + 2] = seq, id
  for _, key in ipairs(lanes) do
    local lane = LANE .. key
    close_last(key)
    local is_new = redis.call('ZADD', lane, seq, id) == 1
    if is_first and (occupied[key] == nil or not is_new) then
      is_first = redis.call('ZRANGE', lane, 0, 0)[1] == id
    elseif occupied[key] then
      is_first = false
    end
    occupied[key] = true
  end
  return is_first
end

local function line_up(id, queue, lanes, seq)
  if join_lanes(id, queue, lanes, seq) then make_ready(id, queue) end
end

-- Returns false if the message exists already.
local function add_message(id, queue, lanes, stored)
  if redis.call('EXISTS', MESSAGE .. id) == 1 then return false end
  local seq, keys = next_place(), distinct(lanes)
  lanes = table.concat(keys, '\n')
  redis.call('HSET', MESSAGE .. id, 'state', 'waiting', 'queue', queue, 'lanes', lanes, 'seq', seq)
  redis.call('SET', BODY .. id, stored)
  line_up(id, queue, keys, seq)
  return true
end

local function write_places()
  if last_place then redis.call('HSET', COUNTS, 'seq', last_place) end
  for group, places in pairs(pending_entries) do call_in_batches('ZADD', PENDING .. group, places) end
end
