-- repair: look at a few messages, and make every key agree with what each message records of itself.
-- With  ready held
-- KEYS  none
-- ARGV  cursor limit lease_ms
-- Returns {the next cursor ("0": been round), how many were mended}
local cursor, limit, lease_ms = unpack(ARGV, 1, 3)

-- A longer list is not searched for one id; it is looked at again when it is shorter.
local SEARCHED = 1000
local mended = 0
local function mend(command, ...)
  redis.call(command, ...)
  mended = mended + 1
end

-- Whether it stood in all its lanes. A lane that was lost gets its messages back in the course of a round, in any order:
-- only after it is it known which one is first.
local function in_lanes(id, lanes, seq)
  local before = mended
  for _, key in ipairs(lanes) do
    if not redis.call('ZSCORE', LANE .. key, id) then mend('ZADD', LANE .. key, seq, id) end
  end
  return mended == before
end

local function stands_in(zset, score)
  return function(id)
    if not redis.call('ZSCORE', zset, id) then mend('ZADD', zset, score, id) end
  end
end

local check = {
  waiting = function(id, queue, lanes)
    if first_everywhere(id, lanes) and not in_paused_lane(lanes) then
      back_to_ready(id, queue)
      mended = mended + 1
    end
  end,
  ready = function(id, queue)
    if redis.call('LLEN', queue) <= SEARCHED and not redis.call('LPOS', queue, id) then mend('RPUSH', queue, id) end
    filled[queue] = true -- with this one, or with more than are searched
  end,
  leased = stands_in(LEASES, now_ms + lease_ms),
  delayed = stands_in(DELAYED, now_ms),
  buried = stands_in(DEAD, now_ms),
  held = function(id) mend_held(id, mend) end,
}

local look_at = {}
local function is_lost(id) return redis.call('EXISTS', MESSAGE .. id) == 0 end

look_at[MESSAGE] = function(id)
  local found = redis.call('HMGET', MESSAGE .. id, 'state', 'queue', 'lanes', 'seq')
  local lanes, is_buried = split(found[3]), found[1] == 'buried'
  if not check[found[1]] then return end
  if not is_buried then stands_in(PENDING .. group_of(found[2]), found[4])(id) end
  if is_buried or found[1] == 'held' or in_lanes(id, lanes, found[4]) then check[found[1]](id, found[2], lanes) end
end

-- A message whose record was lost cannot be handed out any more.
for _, prefix in ipairs({ BODY, ERRORS, JOURNAL }) do
  look_at[prefix] = function(id)
    if not is_lost(id) then return end
    mend('DEL', prefix .. id)
    redis.call('ZREM', DEAD, id)
  end
end

-- A long one is not searched: each round looks at some of it.
look_at[PENDING] = function(group)
  for _, id in ipairs(redis.call('ZRANDMEMBER', PENDING .. group, SEARCHED)) do
    if is_lost(id) then mend('ZREM', PENDING .. group, id) end
  end
end

look_at[LANE] = function(key)
  for _, first in ipairs(redis.call('ZRANGE', LANE .. key, 0, 9)) do
    if not is_lost(first) then break end
    mend('ZREM', LANE .. key, first)
  end
end

local scanned = redis.call('SCAN', cursor, 'MATCH', 'lanes:*', 'COUNT', limit)
for _, key in ipairs(scanned[2]) do
  local prefix = string.match(key, '^lanes:%l+:')
  if look_at[prefix] then look_at[prefix](string.sub(key, #prefix + 1)) end
end
count('repaired', mended)
ring_bells()
return { scanned[1], mended }
