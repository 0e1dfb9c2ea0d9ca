-- leave: return the last messages that a run has taken. They follow it again, in front of all others.
-- With  joining
-- ARGV  id fence kept
--       `kept`: how many of those that were taken stay with the run
-- Returns 1, or 0 if the lease was lost and nothing was changed
local id, fence, kept = unpack(ARGV, 1, 3)

even_when_full()
local queue, lanes = check_lease(id, fence)
if not queue then return 0 end
local keys = split(lanes)
local found = redis.call('HMGET', MESSAGE .. id, 'taken', 'size', 'seq', 'group')
local taken, size, seq = found[1] and cjson.decode(found[1]) or {}, number_of(found[2]), number_of(found[3])
local stays, left = {}, {}
for i, each in ipairs(taken) do
  local those = i <= tonumber(kept) and stays or left
  those[#those + 1] = each
end
if not left[1] then return 1 end

-- Removes the bodies of the last messages from that of the run, and returns them.
local function cut(most)
  local stored, at = redis.call('GET', BODY .. id), {}
  local from = 1
  while from do
    at[#at + 1], from = from, string.find(stored, COLLECTED, from + 1, true)
  end
  local first = at[#at - most + 1]
  redis.call('SET', BODY .. id, string.sub(stored, 1, first - 1))
  return string.sub(stored, first)
end

local follower, its_size = follower_of(id, queue, keys)
local bodies = cut(#left)
redis.call('HSET', MESSAGE .. id, 'size', size - #left)
if stays[1] then
  redis.call('HSET', MESSAGE .. id, 'taken', cjson.encode(stays))
else
  redis.call('HDEL', MESSAGE .. id, 'taken')
end
if follower then
  redis.call('SET', BODY .. follower, bodies .. redis.call('GET', BODY .. follower))
  redis.call('HSET', MESSAGE .. follower, 'size', its_size + #left)
else
  -- Its own place in the lanes, unless the run was replayed since, to a place of its own behind that.
  local its_id, its_seq = left[1][2], left[1][3]
  if tonumber(its_seq) <= seq then its_seq = string.format('%.1f', seq + 0.5) end
  if redis.call('EXISTS', MESSAGE .. its_id) == 1 then its_id = its_id .. ':' .. fence end
  redis.call('HSET', MESSAGE .. its_id, 'state', 'waiting', 'queue', queue, 'lanes', lanes, 'seq', its_seq)
  redis.call('HSET', MESSAGE .. its_id, 'group', found[4], 'size', #left)
  redis.call('SET', BODY .. its_id, bodies)
  for _, key in ipairs(keys) do redis.call('ZADD', LANE .. key, its_seq, its_id) end
  redis.call('ZADD', PENDING .. group_of(queue), its_seq, its_id)
  count('appended', 1)
end
return 1
