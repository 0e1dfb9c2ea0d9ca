-- drop: delete a buried message. It is still remembered as seen, so that it is not appended again.
-- With  places
-- ARGV  id
-- Returns 1, or 0 if no such message is buried
local id = unpack(ARGV, 1, 1)

even_when_full()
if redis.call('HGET', MESSAGE .. id, 'state') ~= 'buried' then return 0 end
redis.call('UNLINK', MESSAGE .. id, BODY .. id, ERRORS .. id, JOURNAL .. id)
redis.call('ZREM', DEAD, id)
count('dropped', 1)
join_successor(id)
finish()
return 1
