-- bury: move a message to the dead letters with its error; its lanes go on.
-- KEYS  none
-- ARGV  id fence problem
-- Returns 1, or 0 when the lease was lost and nothing was changed
local id, fence, problem = unpack(ARGV, 1, 3)

even_when_full()
local mine = holds(id, fence)
if not mine then
  count('refused', 1)
  return 0
end
bury(id, mine.lanes, problem)
ring_bells()
return 1
