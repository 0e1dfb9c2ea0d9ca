-- pause: stop handing out messages of a lane, a queue or a group of queues. New ones wait; running ones continue.
-- With  places
-- ARGV  what named
--       `what` is lane, queue or group
-- Returns 1, or 0 if it was paused already
local what, named = unpack(ARGV, 1, 2)

if redis.call('HSETNX', PAUSED, what .. ':' .. named, now_ms) == 0 then return 0 end
step.is_anything_paused = true

-- No message of a paused lane or limit is ready (see stay_back), so a fetch need not check them.
local function hold_back(id, keeps_stopped)
  local found = redis.call('HMGET', MESSAGE .. id, 'state', 'queue', 'lanes', 'stopped')
  local state, queue, lanes = unpack(found, 1, 3)
  if found[4] and keeps_stopped then return end -- it will not run
  if state ~= 'ready' and state ~= 'collecting' and state ~= 'gated' then return end
  local limits = limits_in(lanes)
  leave_limits(id, limits)
  if state ~= 'ready' then
    stay_back(id, limits)
    step.gated[id] = nil -- it has waited before
    return
  end
  redis.call('LREM', queue, 1, id)
  return_to_ready(id, queue, limits)
end

if what == 'lane' then
  local first = redis.call('ZRANGE', LANE .. named, 0, 0)[1]
  if first then hold_back(first) end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', LIMIT .. named, '-inf', '(0')) do hold_back(id, true) end
end
finish()
return 1
