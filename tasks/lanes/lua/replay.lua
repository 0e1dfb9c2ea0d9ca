-- replay: put a buried message back at the end of its lanes, with its counts at zero.
-- KEYS  none
-- ARGV  id
-- Returns 1, or 0 when no such message is buried
local id = unpack(ARGV, 1, 1)

local found = redis.call('HMGET', MESSAGE .. id, 'state', 'queue', 'lanes')
if found[1] ~= 'buried' then return 0 end
local lanes = split(found[3])
local seq = string.format('%.0f', math.max((tonumber(redis.call('HGET', COUNTS, 'seq')) or 0) + 1, now_us))
redis.call('HSET', COUNTS, 'seq', seq)
redis.call('HSET', MESSAGE .. id, 'state', 'waiting', 'seq', seq, 'replayed', now_ms)
redis.call('HDEL', MESSAGE .. id, 'failed', 'died')
redis.call('DEL', ERRORS .. id)
redis.call('ZREM', DEAD, id)
redis.call('ZADD', PENDING .. group_of(found[2]), seq, id)
for _, key in ipairs(lanes) do redis.call('ZADD', LANE .. key, seq, id) end
if first_everywhere(id, lanes) then to_ready(id, found[2]) end
count('replayed', 1)
ring_bells()
return 1
