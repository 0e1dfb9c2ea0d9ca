-- timer_repair: make the times of timers (TIMERS) agree with the timers of their owners (TIMER, OVERFLOW).
-- With  timer_records
-- Owns  left

local left = 200 -- of the members of long keys, this many may still be checked in this step

local function note_checked(members)
  left = math.max(left - #members, 0)
  return members
end

-- A lost time is taken from the id, if it was completed by it; without one, the timer is due now.
local function repair_time(owner, fields, fix)
  local id = timer_of(owner, fields)
  local timer = id and owner .. '\n' .. fields[1]
  if not id or redis.call('ZSCORE', TIMERS, timer) then return end
  fix('ZADD', TIMERS, string.match(id, ':(%d+):%d+$') or now_ms, timer)
end

local function repair_timers_of(owner, fix)
  local text, at = redis.call('GET', TIMER .. owner), 1
  while at <= #text do
    local fields, after = fields_of(text, at, TIMER_FIELDS)
    if not fields[1] then fix('SET', TIMER .. owner, string.sub(text, 1, at - 1)) end
    repair_time(owner, fields, fix)
    at = after
  end
end

local function repair_overflow_of(owner, fix)
  local found = note_checked(redis.call('HRANDFIELD', OVERFLOW .. owner, left, 'WITHVALUES'))
  for i = 2, #found, 2 do repair_time(owner, (fields_of(found[i], 1, TIMER_FIELDS)), fix) end
end

local function has_record(owner, name)
  local text = redis.call('GET', TIMER .. owner) or ''
  return string.find(text, #name .. ':' .. name, 1, true) or redis.call('HEXISTS', OVERFLOW .. owner, name) == 1
end

local function repair_times(fix)
  for _, timer in ipairs(note_checked(redis.call('ZRANDMEMBER', TIMERS, left))) do
    local owner, name = owner_and_name(timer)
    if not owner or not has_record(owner, name) then fix('ZREM', TIMERS, timer) end
  end
end
