-- replay: put a buried message back at the end of its lanes, with its counts at zero.
-- With  places
-- ARGV  id
-- Returns 1, or 0 if no such message is buried
local id = unpack(ARGV, 1, 1)

local found = redis.call('HMGET', MESSAGE .. id, 'state', 'queue', 'lanes')
if found[1] ~= 'buried' then return 0 end
local lanes = split(found[3])
local seq = next_place()
redis.call('HSET', MESSAGE .. id, 'state', 'waiting', 'seq', seq, 'replayed', now_ms)
redis.call('HDEL', MESSAGE .. id, 'failed', 'died', 'parked', 'alive', 'stopped')
redis.call('DEL', ERRORS .. id)
redis.call('ZREM', DEAD, id)
line_up(id, found[2], lanes, seq)
count('replayed', 1)
finish()
return 1
