-- calls: what the journal of a message says.

-- Of the call at a position.
local function call_of(id, position)
  local noted = redis.call('HGET', JOURNAL .. id, position)
  if not noted then return nil end
  local state, by, what, outcome = string.match(noted, '^(%S+) (%S+) (%S+) (.*)$')
  return { state = state, by = by, what = what, outcome = outcome }
end
