-- shield: keep a run from being interrupted or stopped, or allow it again. A group that arrived meanwhile and would have
-- interrupted it joins it then, and ends the run. A message that arrived meanwhile to stop it ends the run then.
-- With  joining
-- KEYS  none
-- ARGV  id fence shielded
--       `shielded` is 1 or 0
-- Returns 1, 0 if the lease was lost and nothing was changed, or 2 if the run has ended
local id, fence, shielded = unpack(ARGV, 1, 3)

-- Returns true if it joined and ended the run. Its time stays the same; with other messages behind it, it is due now.
local function join_follower(id, queue, lanes, follower)
  local mine = redis.call('HMGET', MESSAGE .. id, 'group', 'lanes', 'size', 'stopped')
  local its = redis.call('HMGET', MESSAGE .. follower, 'group', 'lanes', 'size', 'queue', 'fence')
  local group, size = mine[1], (number_of(mine[3]) or 1) + (number_of(its[3]) or 1)
  if not group or mine[4] or its[1] ~= group or its[2] ~= mine[2] or its[4] ~= queue or its[5] then return false end
  local _, _, most, interrupts = limits_of(group)
  if not interrupts or size > most or not may_interrupt(id) then return false end
  local due_ms = same_in_all(lanes, -1) == follower and redis.call('ZSCORE', COLLECTING, follower) or now_ms
  interrupt(id)
  redis.call('HSET', MESSAGE .. id, 'size', size)
  extend_body(id, redis.call('GET', BODY .. follower))
  for _, key in ipairs(lanes) do redis.call('ZREM', LANE .. key, follower) end
  redis.call('ZREM', COLLECTING, follower)
  step.collected = step.collected + 1
  absorb(follower, queue)
  set_due(id, queue, size < most and tonumber(due_ms) or now_ms)
  make_ready(id, queue)
  return true
end

even_when_full()
local queue, lanes = check_lease(id, fence)
if not queue then return 0 end
if shielded == '1' then
  redis.call('HSET', MESSAGE .. id, 'shielded', 1)
  return 1
end
redis.call('HDEL', MESSAGE .. id, 'shielded')
if redis.call('HGET', MESSAGE .. id, 'stopped') == fence then
  end_stopped(id, 'leased', fence)
else
  local keys = split(lanes)
  local follower = is_first_in_all(id, keys) and same_in_all(keys, 1)
  if not follower or not join_follower(id, queue, keys, follower) then return 1 end
end
count('collected', step.collected)
finish()
return 2
