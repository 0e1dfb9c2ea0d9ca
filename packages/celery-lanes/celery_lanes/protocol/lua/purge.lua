-- purge: bury the ready messages of a queue. Called until it returns 0, it empties the queue except for messages that
-- are leased, delayed, or wait behind one of those.
-- With  ending
-- KEYS  the queue
-- ARGV  limit problem
-- Returns how many were buried
local limit, problem = unpack(ARGV, 1, 2)
limit = tonumber(limit)

local buried = 0
while buried < limit do
  write_ready() -- messages that the previous burial made ready
  local entry = redis.call('RPOP', KEYS[1])
  if not entry then break end
  local id = id_of(entry, KEYS[1])
  local found = redis.call('HMGET', MESSAGE .. id, 'state', 'lanes')
  if found[1] == 'ready' then
    bury(id, found[2], problem)
    buried = buried + 1
  end
end
write_ready()
step.filled[KEYS[1]] = redis.call('EXISTS', KEYS[1]) == 1
finish()
return buried
