-- move_out: move messages that no worker has from their lanes to an ordinary list, as kombu publishes there, in one step.
-- They count as settled, timers as cancelled.
-- With  timers ending
-- KEYS  the list
-- ARGV  id timer stored element, once for each message, the oldest first: `element` is what the list gets; a message with
--       a `timer` (may be empty) waits there. Another one moves if it is the first in all its lanes, so that the list has
--       their order, if its stored form is still `stored`, and if it is not a group, is neither stopped nor over its rate,
--       and has no journal
-- Returns for each message 1 if it was moved, otherwise 0
local MOVABLE = { ready = true, waiting = true, gated = true, delayed = true }
local queues = {}

-- The list gets it first: if that fails, nothing is changed.
local function leave(id, stored, element)
  write_lists() -- messages that the ones before have made ready; permits are given when all have left
  local found = redis.call('HMGET', MESSAGE .. id, 'state', 'queue', 'lanes', 'group', 'size', 'stopped', 'turn')
  local state, queue, lanes, group, size, stopped, turn = unpack(found, 1, 7)
  if not MOVABLE[state] or group or size or stopped or turn then return 0 end
  if redis.call('GET', BODY .. id) ~= stored or redis.call('EXISTS', JOURNAL .. id) == 1 then return 0 end
  if not is_first_in_all(id, split(lanes)) then return 0 end
  redis.call('LPUSH', KEYS[1], element)
  if state == 'ready' then redis.call('LREM', queue, 1, id) end
  redis.call('ZREM', DELAYED, id)
  queues[queue] = true
  settle(id, queue, lanes)
  return 1
end

local function leave_timer(timer, element)
  if not redis.call('ZSCORE', TIMERS, timer) then return 0 end
  redis.call('LPUSH', KEYS[1], element)
  return cancel_timer(timer)
end

local outcomes = {}
for i = 1, #ARGV, 4 do
  local id, timer, stored, element = unpack(ARGV, i, i + 3)
  outcomes[#outcomes + 1] = timer == '' and leave(id, stored, element) or leave_timer(timer, element)
end
write_ready()
for queue in pairs(queues) do step.filled[queue] = redis.call('EXISTS', queue) == 1 end
finish()
return outcomes
