-- close: end the collecting of a group during its run. Later messages wait behind it, and none interrupts it; a stop does.
-- ARGV  id fence
-- Returns 1, or 0 if the lease was lost and nothing was changed
local id, fence = unpack(ARGV, 1, 2)

even_when_full()
if not check_lease(id, fence) then return 0 end
redis.call('HDEL', MESSAGE .. id, 'group')
return 1
