-- purge: bury what is ready in a queue. Called until it answers 0, it empties the queue but for what is leased,
-- delayed, or waits behind one of those.
-- With  ends foreign
-- KEYS  the queue
-- ARGV  limit problem
-- Returns how many were buried
local limit, problem = unpack(ARGV, 1, 2)
limit = tonumber(limit)

local buried = 0
while buried < limit do
  enter_ready() -- what became ready by the one before
  local entry = redis.call('RPOP', KEYS[1])
  if not entry then break end
  local id = id_of(entry, KEYS[1])
  local found = redis.call('HMGET', MESSAGE .. id, 'state', 'lanes')
  if found[1] == 'ready' then
    bury(id, found[2], problem)
    buried = buried + 1
  end
end
clear_away()
enter_ready()
filled[KEYS[1]] = redis.call('EXISTS', KEYS[1]) == 1
ring_bells()
return buried
