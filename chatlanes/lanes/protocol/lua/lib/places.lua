-- places: how a message lines up behind all others. What is known of all that line up in a step is written together, by
-- `note_places`, which every verb that lines up calls.
-- With  ready
-- Owns  last_place standing standing_of occupied

local last_place
local standing = {} -- group -> place and id of each that lines up
local standing_of = {} -- queue -> the same, of its group
local occupied = {} -- lane -> whether anything stands in it, where that is known

local function distinct(lanes)
  local all = split(lanes)
  if not all[2] then return all end
  local keys, known = {}, {}
  for _, key in ipairs(all) do
    if not known[key] then known[key], keys[#keys + 1] = true, key end
  end
  return keys
end

-- Grows with every message, also when the counter was lost or the clock set back: a newcomer stands behind all others.
local function next_place()
  last_place = math.max((last_place or tonumber(redis.call('HGET', COUNTS, 'seq')) or 0) + 1, now_us)
  return last_place
end

-- Returns whether it is the first in all its lanes.
local function stand(id, queue, lanes, seq)
  local places, is_first = standing_of[queue], true
  if not places then
    local group = group_of(queue)
    places = standing[group] or {}
    standing[group], standing_of[queue] = places, places
  end
  local n = #places
  places[n + 1], places[n + 2] = seq, id
  for _, key in ipairs(lanes) do
    local lane = LANE .. key
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
  if stand(id, queue, lanes, seq) then to_ready(id, queue) end
end

local function note_places()
  if last_place then redis.call('HSET', COUNTS, 'seq', last_place) end
  for group, places in pairs(standing) do together('ZADD', PENDING .. group, places) end
end
