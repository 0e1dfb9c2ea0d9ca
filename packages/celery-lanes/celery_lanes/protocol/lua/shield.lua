-- shield: keep a run from being interrupted or stopped, or allow it again. A group that arrived meanwhile and would have
-- interrupted it joins it then, and ends the run. A message that arrived meanwhile to stop it ends the run then.
-- With  joining
-- ARGV  id fence shielded
--       `shielded` is 1 or 0
-- Returns 1, 0 if the lease was lost and nothing was changed, or 2 if the run has ended
local id, fence, shielded = unpack(ARGV, 1, 3)

-- Returns true if it joined and ended the run. Its time stays the same; with other messages behind it, it is due now.
local function join_follower(id, queue, lanes)
  local follower, its_size = follower_of(id, queue, lanes)
  if not follower then return false end
  local group, size, stopped = unpack(redis.call('HMGET', MESSAGE .. id, 'group', 'size', 'stopped'), 1, 3)
  if stopped then return false end
  local _, _, most, interrupts = limits_of(group)
  size = (number_of(size) or 1) + its_size
  if not interrupts or size > most or not may_interrupt(id) then return false end
  local due_ms = same_in_all(lanes, -1) == follower and redis.call('ZSCORE', COLLECTING, follower) or now_ms
  interrupt(id)
  redis.call('HSET', MESSAGE .. id, 'size', size)
  extend_body(id, redis.call('GET', BODY .. follower))
  step.collected = step.collected + 1
  absorb(follower, queue, lanes)
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
elseif not join_follower(id, queue, split(lanes)) then
  return 1
end
count('collected', step.collected)
finish()
return 2
