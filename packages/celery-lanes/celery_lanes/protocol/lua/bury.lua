-- bury: move a message to the dead letters with its error; its lanes continue.
-- With  ending
-- ARGV  id fence problem
-- Returns 1, or 0 if the lease was lost and nothing was changed
local id, fence, problem = unpack(ARGV, 1, 3)

even_when_full()
local queue, lanes = check_lease(id, fence)
if not queue then return 0 end
bury(id, lanes, problem)
finish()
return 1
