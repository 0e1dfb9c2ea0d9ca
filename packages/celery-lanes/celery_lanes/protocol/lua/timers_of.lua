-- timers_of: return timers of owners, about 100 in a step.
-- With  timers
-- ARGV  owner cursor, once for each owner; `cursor` is 0 at first
-- Returns {the cursor of each owner for the next call, empty if all of its timers were returned}, the version of the
--       texts of a timer that could not be read (0: all could), then for each timer owner, name, when it is due (ms), id,
--       queue, lanes, stored form; a timer may be returned twice
local MOST, VALUES = 50, 7
local cursors = {}
local found = { cursors, 0 }

local function add(owner, fields)
  local due_ms = timer_of(owner, fields) and redis.call('ZSCORE', TIMERS, owner .. '\n' .. fields[1])
  if not due_ms then return end
  for _, value in ipairs({ owner, fields[1], digits(math.ceil(due_ms)), timer_of(owner, fields) }) do
    found[#found + 1] = value
  end
end

local function add_all(owner, cursor)
  local text, at, fields = cursor == '0' and redis.call('GET', TIMER .. owner) or '', 1, nil
  while at <= #text do
    fields, at = fields_of(text, at, TIMER_FIELDS)
    add(owner, fields)
  end
  local scanned = redis.call('HSCAN', OVERFLOW .. owner, cursor, 'COUNT', MOST)
  for j = 2, #scanned[2], 2 do
    add(owner, (fields_of(scanned[2][j], 1, TIMER_FIELDS)))
  end
  return scanned[1] == '0' and '' or scanned[1]
end

for i = 1, #ARGV, 2 do
  local owner, cursor = unpack(ARGV, i, i + 1)
  cursors[#cursors + 1] = #found > MOST * VALUES and cursor or add_all(owner, cursor)
end
found[2] = step.unknown_version
return found
