-- shield: keep a run from being interrupted, or allow it again. A group that arrived meanwhile and would have
-- interrupted it joins it then, and ends the run.
-- With  following lease
-- KEYS  none
-- ARGV  id fence shielded
--       `shielded` is 1 or 0
-- Returns 1, 0 if the lease was lost and nothing was changed, or 2 if the run has ended
local id, fence, shielded = unpack(ARGV, 1, 3)

even_when_full()
local queue, lanes = check_lease(id, fence)
if not queue then return 0 end
if shielded == '1' then
  redis.call('HSET', MESSAGE .. id, 'shielded', 1)
  return 1
end
redis.call('HDEL', MESSAGE .. id, 'shielded')
local keys = split(lanes)
local follower = behind_in_all(id, keys)
if not follower or not join_follower(id, queue, keys, follower) then return 1 end
count('collected', collected)
wake_workers()
return 2
