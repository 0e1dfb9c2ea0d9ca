-- collecting: open groups have a time at which they are due. Until then, a group that is first in all its lanes is not
-- ready (stay_back). An open group that gets another message behind it in a lane is due at once.
-- With  ready
-- Reads  is_any_timer_set (paused)
-- Writes  announced (ready), is_anything_collecting (paused)

-- A worker is woken if it may have to wait for this time: it learns it from its fetch (turn.lua).
local function set_due(id, queue, due_ms)
  if due_ms <= now_ms then
    redis.call('ZREM', COLLECTING, id)
    return
  end
  is_anything_collecting = true
  local is_new = redis.call('ZADD', COLLECTING, due_ms, id) == 1
  if is_new and redis.call('ZRANGE', COLLECTING, 0, 0)[1] == id then announced[queue] = true end
end

local function end_collecting(id)
  if redis.call('ZREM', COLLECTING, id) == 0 then return end
  local found = redis.call('HMGET', MESSAGE .. id, 'state', 'queue')
  if found[1] == 'collecting' then make_ready(id, found[2]) end
end

-- Called before a message joins a lane.
local function close_last(key)
  if not is_anything_collecting then return end
  local last = redis.call('ZRANGE', LANE .. key, -1, -1)[1]
  if last then end_collecting(last) end
end

local function end_due(limit)
  if not is_anything_collecting then return end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', COLLECTING, '-inf', now_ms, 'LIMIT', 0, limit)) do
    end_collecting(id)
  end
end

-- Returns ms until the next group or timer is due, -1 if there is none.
local function next_due()
  local group = is_anything_collecting and redis.call('ZRANGE', COLLECTING, 0, 0, 'WITHSCORES')[2]
  local timer = is_any_timer_set and redis.call('ZRANGE', TIMERS, 0, 0, 'WITHSCORES')[2]
  if not group and not timer then return -1 end
  return math.max(math.ceil(math.min(group or math.huge, timer or math.huge) - now_ms), 0)
end
