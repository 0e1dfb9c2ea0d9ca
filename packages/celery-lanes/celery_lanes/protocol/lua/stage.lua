-- stage: store the next writes of a large commit, which does them.
-- ARGV  id fence before
--       then row, once for each write: its four fields, as timers.lua joins fields
--       `before`: how many of its writes were stored before; the others are replaced
-- Returns 1, or 0 if the lease was lost and nothing was changed
local id, fence, before = unpack(ARGV, 1, 3)
-- Writes without a commit are forgotten after this time.
local KEPT_S = 3600

even_when_full()
if not holds(id, fence) then return 0 end
local stage = STAGED .. id .. '#' .. fence
if before == '0' then redis.call('UNLINK', stage) end
for i = 4, #ARGV do
  redis.call('RPUSH', stage, ARGV[i])
end
redis.call('EXPIRE', stage, KEPT_S)
return 1
