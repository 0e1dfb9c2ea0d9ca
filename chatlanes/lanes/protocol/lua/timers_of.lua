-- timers_of: return the timers of owners.
-- With  timer_records
-- KEYS  none
-- ARGV  owner, once for each owner
-- Returns for each timer owner, name, when it is due (ms), id, queue, lanes, stored form
local found = {}

local function add(owner, fields)
  local due_ms = timer_of(owner, fields) and redis.call('ZSCORE', TIMERS, owner .. '\n' .. fields[1])
  if not due_ms then return end
  for _, value in ipairs({ owner, fields[1], digits(math.ceil(due_ms)), timer_of(owner, fields) }) do
    found[#found + 1] = value
  end
end

for i = 1, #ARGV do
  local owner = ARGV[i]
  local text, at, fields = redis.call('GET', TIMER .. owner) or '', 1, nil
  while at <= #text do
    fields, at = fields_of(text, at, TIMER_FIELDS)
    add(owner, fields)
  end
  for _, record in ipairs(redis.call('HVALS', OVERFLOW .. owner)) do
    add(owner, (fields_of(record, 1, TIMER_FIELDS)))
  end
end
return found
