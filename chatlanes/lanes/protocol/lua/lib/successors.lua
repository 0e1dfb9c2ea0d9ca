-- successors: a message that is published while one with its id runs, such as the replacement of a task. It has no record
-- until that run has ended: when the other message is settled or dropped, it joins the end of its lanes. There is at
-- most one for an id.
-- With  places

-- Returns false if no message with this id runs, or there is a successor already.
local function set_successor(id, queue, lanes, stored)
  local state = redis.call('HGET', MESSAGE .. id, 'state')
  if state ~= 'leased' and state ~= 'committing' then return false end
  return redis.call('HSETNX', SUCCESSORS, id, queue .. '\t' .. lanes .. '\t' .. stored) == 1
end

-- The other message has no record any more. Returns false if there is no successor.
local function join_successor(id)
  local found = redis.call('HGET', SUCCESSORS, id)
  if not found then return false end
  redis.call('HDEL', SUCCESSORS, id)
  add_message(id, string.match(found, '^([^\t]*)\t([^\t]*)\t(.*)$'))
  count('appended', 1)
  return true
end
