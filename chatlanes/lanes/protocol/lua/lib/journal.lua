-- journal: read the journal of a message.

-- Returns the recorded call at a position, or nil.
local function call_of(id, position)
  local noted = redis.call('HGET', JOURNAL .. id, position)
  if not noted then return nil end
  local state, by, what, outcome = string.match(noted, '^(%S+) (%S+) (%S+) (.*)$')
  return { state = state, by = by, what = what, outcome = outcome }
end
