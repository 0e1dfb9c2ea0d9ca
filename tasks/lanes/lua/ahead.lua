-- ahead: of many messages it is asked at once which of them are there, and which of their lanes are empty: mostly it is
-- all of them, or none.
-- With  places

local existing = {} -- id -> whether there is such a message, where that is known

-- The arguments are groups of so many from this one on: the first of each is an id, the last its lanes.
local function look_ahead(from, size)
  local ids, lanes = {}, {}
  for i = from, #ARGV, size do
    if existing[ARGV[i]] == nil then ids[#ids + 1], existing[ARGV[i]] = MESSAGE .. ARGV[i], false end
    for _, key in ipairs(split(ARGV[i + size - 1])) do
      if occupied[key] == nil then lanes[#lanes + 1], occupied[key] = LANE .. key, false end
    end
  end
  for _, key in ipairs(which(ids, true)) do existing[string.sub(key, #MESSAGE + 1)] = true end
  for _, key in ipairs(which(lanes, true)) do occupied[string.sub(key, #LANE + 1)] = true end
end

local function is_there(id)
  if existing[id] == nil then existing[id] = redis.call('EXISTS', MESSAGE .. id) == 1 end
  return existing[id]
end
