-- bulk_exists: find out which of many messages exist, and which of their lanes are empty, with one EXISTS for 25 keys.
-- Usually all keys of such a batch exist, or none. Otherwise each key is checked when it is needed.
-- With  places
-- Owns  existing
-- Writes  occupied (places)

local existing = {} -- id -> whether the message exists; nil: not known

local function check_keys(prefix, names, known)
  for i = 1, #names, 25 do
    local keys, last = {}, math.min(i + 24, #names)
    for j = i, last do keys[#keys + 1] = prefix .. names[j] end
    local found = redis.call('EXISTS', unpack(keys))
    for j = i, last do
      if found == 0 or found == #keys then known[names[j]] = found > 0 end
    end
  end
end

-- The arguments from index `from` on are groups of `size`. The first of a group is an id, the last its lanes.
local function check_existence(from, size)
  local ids, lanes = {}, {}
  for i = from, #ARGV, size do
    ids[#ids + 1] = ARGV[i]
    for _, key in ipairs(split(ARGV[i + size - 1])) do lanes[#lanes + 1] = key end
  end
  check_keys(MESSAGE, ids, existing)
  check_keys(LANE, lanes, occupied)
end

local function message_exists(id)
  if existing[id] == nil then existing[id] = redis.call('EXISTS', MESSAGE .. id) == 1 end
  return existing[id]
end
