-- back: how a message is taken from its holder, and what is kept of one that is buried.

-- Every take-back gives a new fence: whoever still holds the old one is refused from here on. Gives the queue.
local function take_back(id, state)
  local found = redis.call('HMGET', MESSAGE .. id, 'fence', 'queue')
  redis.call('HSET', MESSAGE .. id, 'state', state, 'fence', next_fence(found[1]))
  redis.call('HDEL', MESSAGE .. id, 'holder')
  redis.call('ZREM', LEASES, id)
  return found[2]
end

-- Whoever held it died with it. `alive_ms` is the last that was heard of it: recovery is counted from there, until a
-- run ends.
local function has_died(id, alive_ms)
  redis.call('HINCRBY', MESSAGE .. id, 'died', 1)
  redis.call('HSET', MESSAGE .. id, 'alive', math.floor(alive_ms))
end

local function to_dead(id, problem)
  redis.call('RPUSH', ERRORS .. id, problem)
  redis.call('ZADD', DEAD, now_ms, id)
  count('buried', 1)
end
