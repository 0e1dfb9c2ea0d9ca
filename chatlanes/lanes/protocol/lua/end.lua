-- end: note what became of a call that this run has begun.
-- With  calls
-- KEYS  none
-- ARGV  id fence position what kind outcome
--       `kind` is done, refused (it took no effect), or undone: it was not made
-- Returns 1, or 0 when the lease was lost and nothing was changed
local id, fence, position, what, kind, outcome = unpack(ARGV, 1, 6)

even_when_full()
if not holds(id, fence) then
  -- Not awaited, it may come behind the commit of its own run, by another connection: that is no zombie to be counted.
  count('refused', redis.call('EXISTS', MESSAGE .. id))
  return 0
end
if kind ~= 'undone' then
  redis.call('HSET', JOURNAL .. id, position, table.concat({ kind, fence, what, outcome }, ' '))
  return 1
end
-- Of a call that an earlier run may have made, nothing is taken back.
local found = call_of(id, position)
if found and found.by == fence and found.state == 'begun' then redis.call('HDEL', JOURNAL .. id, position) end
return 1
