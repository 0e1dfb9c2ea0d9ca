-- paused: which messages are not handed out although they are first in all their lanes: those of paused lanes, queues
-- and groups of queues, and groups of messages that wait for further ones.
-- Owns  special is_anything_paused is_anything_collecting is_any_timer_set is_any_succeeded

local special = redis.call('EXISTS', PAUSED, COLLECTING, TIMERS, SUCCESSORS)
local function is_special(key) return special == 4 or (special > 0 and redis.call('EXISTS', key) == 1) end
local is_anything_paused, is_anything_collecting = is_special(PAUSED), is_special(COLLECTING)
local is_any_timer_set, is_any_succeeded = is_special(TIMERS), is_special(SUCCESSORS)

local function is_paused(what, name)
  return is_anything_paused and redis.call('HEXISTS', PAUSED, what .. ':' .. name) == 1
end

local function in_paused_lane(lanes)
  for _, key in ipairs(is_anything_paused and lanes or {}) do
    if is_paused('lane', key) then return true end
  end
  return false
end

-- Instead of becoming ready, a message in a paused lane waits, and a group that is not due yet is collected. Returns
-- true if so.
local function stay_back(id)
  if is_anything_paused and in_paused_lane(split(redis.call('HGET', MESSAGE .. id, 'lanes'))) then
    redis.call('HSET', MESSAGE .. id, 'state', 'waiting')
    return true
  end
  local due_ms = is_anything_collecting and redis.call('ZSCORE', COLLECTING, id)
  if not due_ms then return false end
  if tonumber(due_ms) > now_ms then
    redis.call('HSET', MESSAGE .. id, 'state', 'collecting')
    return true
  end
  redis.call('ZREM', COLLECTING, id)
  return false
end
