-- purge: bury what is ready in a queue. Called until it answers 0, it empties the queue but for what is leased,
-- delayed, or waits behind one of those.
-- KEYS  the queue
-- ARGV  limit problem
-- Returns how many were buried
local limit, problem = unpack(ARGV, 1, 2)

local buried = 0
for _ = 1, limit do
  local id = redis.call('RPOP', KEYS[1])
  if not id then break end
  local found = redis.call('HMGET', MESSAGE .. id, 'state', 'lanes')
  if found[1] == 'ready' then
    bury(id, split(found[2]), problem)
    buried = buried + 1
  end
end
ring_bells()
return buried
