-- take_back: take a message from its holder, count a death, add a message to the dead letters.

-- Gives the message a new fence, so that its old holder is refused from here on. Returns the queue.
local function take_back(id, state)
  local found = redis.call('HMGET', MESSAGE .. id, 'fence', 'queue')
  redis.call('HSET', MESSAGE .. id, 'state', state, 'fence', next_fence(found[1]))
  redis.call('HDEL', MESSAGE .. id, 'holder', 'open', 'shielded')
  redis.call('ZREM', LEASES, id)
  return found[2]
end

-- The holder died while it had the message. `alive_ms` is the time of its last sign of life: the recovery time is
-- measured from there, until a run ends.
local function count_death(id, alive_ms)
  redis.pcall('HINCRBY', MESSAGE .. id, 'died', 1) -- a corrupt count stays: leasing.lua buries the message
  redis.call('HSET', MESSAGE .. id, 'alive', math.floor(alive_ms))
end

local function add_dead_letter(id, problem)
  redis.call('RPUSH', ERRORS .. id, problem)
  redis.call('ZADD', DEAD, now_ms, id)
  count('buried', 1)
end
