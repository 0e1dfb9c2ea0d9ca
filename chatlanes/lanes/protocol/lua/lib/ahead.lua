-- ahead: of many messages it is asked at once which of them are there, and which of their lanes are empty: of some at a
-- time it is mostly all of them, or none. Where it is not, each is asked about when it is needed.
-- With  places
-- Owns  existing
-- Writes  occupied (places)

local existing = {} -- id -> whether there is such a message, where that is known

local function ask(prefix, names, known)
  for i = 1, #names, 25 do
    local keys, last = {}, math.min(i + 24, #names)
    for j = i, last do keys[#keys + 1] = prefix .. names[j] end
    local found = redis.call('EXISTS', unpack(keys))
    for j = i, last do
      if found == 0 or found == #keys then known[names[j]] = found > 0 end
    end
  end
end

-- The arguments are groups of so many from this one on: the first of each is an id, the last its lanes.
local function look_ahead(from, size)
  local ids, lanes = {}, {}
  for i = from, #ARGV, size do
    ids[#ids + 1] = ARGV[i]
    for _, key in ipairs(split(ARGV[i + size - 1])) do lanes[#lanes + 1] = key end
  end
  ask(MESSAGE, ids, existing)
  ask(LANE, lanes, occupied)
end

local function is_there(id)
  if existing[id] == nil then existing[id] = redis.call('EXISTS', MESSAGE .. id) == 1 end
  return existing[id]
end
