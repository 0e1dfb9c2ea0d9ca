-- end: record the outcome of a call that this run has begun, also after the run was interrupted.
-- ARGV  id fence position what kind outcome
--       `kind` is done, refused (the call took no effect), or undone (it was not made)
-- Returns 1, or 0 if the lease was lost; then nothing was changed that concerns another run
local id, fence, position, what, kind, outcome = unpack(ARGV, 1, 6)

even_when_full()
-- Adds the outcome of a call to those that an interrupted run has left (joining.lua). True if it left this one.
local function add_to_left()
  local left = fence .. ' ' .. position
  local found = call_of(id, left)
  if not found or found.state ~= 'begun' then return false end
  if kind == 'done' then
    redis.call('HSET', JOURNAL .. id, left, table.concat({ kind, fence, what, outcome }, ' '))
  else
    redis.call('HDEL', JOURNAL .. id, left)
  end
  return true
end

if not holds(id, fence) then
  if add_to_left() then return 0 end
  -- It is not awaited, so it may arrive after the commit of its own run, on another connection. That is not counted.
  count('refused', redis.call('EXISTS', MESSAGE .. id))
  return 0
end
if kind ~= 'undone' then
  redis.call('HSET', JOURNAL .. id, position, table.concat({ kind, fence, what, outcome }, ' '))
  return 1
end
-- The record of a call that an earlier run may have made is kept.
local found = call_of(id, position)
if found and found.by == fence and found.state == 'begun' then redis.call('HDEL', JOURNAL .. id, position) end
return 1
