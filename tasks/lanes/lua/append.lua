-- append: put a whole batch at the end of its lanes, all or nothing; what was seen before is dropped.
-- KEYS  1 guard  hash, may be left out: nothing is appended unless its field `fence` is ARGV's
-- ARGV  seen_ttl_s seen_block fence
--       then id queue stored scope number problem lanes, once for each message: `scope` and `number` (may be empty)
--       are what it is remembered by, a `problem` buries it at once, `lanes` are keys joined by \n
-- Returns {added, seen, buried, pending in the groups of these queues}, or nil when the guard has another fence
local seen_ttl_s, seen_block, fence = unpack(ARGV, 1, 3)

if KEYS[1] and redis.call('HGET', KEYS[1], 'fence') ~= fence then return false end

local added, seen, buried, pending = 0, 0, 0, 0
local remember, groups = {}, {}
local last = tonumber(redis.call('HGET', COUNTS, 'seq')) or 0

local function distinct(lanes)
  local keys, known = {}, {}
  for _, key in ipairs(split(lanes)) do
    if not known[key] then known[key], keys[#keys + 1] = true, key end
  end
  return keys
end

local function was_seen(id, scope, number)
  if scope ~= '' then
    local key = SEEN .. scope .. ':' .. math.floor(number / seen_block)
    local seen_now = remember[key] and remember[key][number % seen_block]
    if seen_now or redis.call('GETBIT', key, number % seen_block) == 1 then return true end
    remember[key] = remember[key] or {}
    remember[key][number % seen_block] = true
  end
  return redis.call('EXISTS', MESSAGE .. id) == 1
end

local function add(id, queue, stored, problem, lanes)
  last = math.max(last + 1, now_us) -- so that a lost counter never puts a newcomer before an old one
  local seq = string.format('%.0f', last)
  redis.call('HSET', MESSAGE .. id, 'state', 'waiting', 'queue', queue, 'lanes', table.concat(lanes, '\n'), 'seq', seq)
  redis.call('SET', BODY .. id, stored)
  added = added + 1
  if problem ~= '' then
    buried = buried + 1
    return bury(id, {}, problem)
  end
  redis.call('ZADD', PENDING .. group_of(queue), seq, id)
  for _, key in ipairs(lanes) do redis.call('ZADD', LANE .. key, seq, id) end
  if first_everywhere(id, lanes) then to_ready(id, queue) end
end

for i = 4, #ARGV, 7 do
  local id, queue, stored, scope, number, problem, lanes = unpack(ARGV, i, i + 6)
  groups[group_of(queue)] = true
  if was_seen(id, scope, tonumber(number)) then
    seen = seen + 1
  else
    add(id, queue, stored, problem, distinct(lanes))
  end
end

-- Last, so that nothing is remembered that is not stored.
for key, offsets in pairs(remember) do
  for offset in pairs(offsets) do redis.call('SETBIT', key, offset, 1) end
  redis.call('EXPIRE', key, seen_ttl_s)
end
if added > 0 then redis.call('HSET', COUNTS, 'seq', string.format('%.0f', last)) end
count('appended', added)
count('seen', seen)
for group in pairs(groups) do pending = pending + redis.call('ZCARD', PENDING .. group) end
ring_bells()
return { added, seen, buried, pending }
