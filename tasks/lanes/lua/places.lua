-- places: how a message lines up behind all others.
-- With  ready

local function distinct(lanes)
  local keys, known = {}, {}
  for _, key in ipairs(split(lanes)) do
    if not known[key] then known[key], keys[#keys + 1] = true, key end
  end
  return keys
end

-- Grows with every message, also when the counter was lost or the clock set back: a newcomer stands behind all others.
local last_place
local function next_place()
  last_place = math.max((last_place or tonumber(redis.call('HGET', COUNTS, 'seq')) or 0) + 1, now_us)
  local seq = string.format('%.0f', last_place)
  redis.call('HSET', COUNTS, 'seq', seq)
  return seq
end

local function line_up(id, queue, lanes, seq)
  redis.call('ZADD', PENDING .. group_of(queue), seq, id)
  for _, key in ipairs(lanes) do redis.call('ZADD', LANE .. key, seq, id) end
  if first_everywhere(id, lanes) then to_ready(id, queue) end
end
