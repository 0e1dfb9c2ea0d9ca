-- timer_repair: make the times of timers (TIMERS) agree with the timers of their owners (TIMER).
-- With  timer_records

-- Only this many are checked in one step.
local CHECKED = 1000

-- A lost time is taken from the id, if it was completed by it; without one, the timer is due now.
local function repair_timers_of(owner, fix)
  local text, fields, at = redis.call('GET', TIMER .. owner), nil, 1
  for _ = 1, CHECKED do
    fields, at = fields_of(text, at, TIMER_FIELDS)
    if not fields[1] then return end
    local timer = owner .. '\n' .. fields[1]
    if not redis.call('ZSCORE', TIMERS, timer) then
      fix('ZADD', TIMERS, string.match(fields[2], ':(%d+):%d+$') or now_ms, timer)
    end
  end
end

local function repair_times(fix)
  for _, timer in ipairs(redis.call('ZRANDMEMBER', TIMERS, CHECKED)) do
    if redis.call('EXISTS', TIMER .. owner_and_name(timer)) == 0 then fix('ZREM', TIMERS, timer) end
  end
end
