-- missing: the numbers of a scope that have not arrived although higher ones have. A missing number is waited for by what
-- arrives within hold_ms of the first message above it, and by each for hold_ms: then nothing waits for it any more.
-- With  seen
-- Owns  gap_scopes

local gap_scopes = {} -- scope -> whether any gap is recorded, where that is known

local function digits(number) return string.format('%.0f', number) end
local function place_of(scope, number) return scope .. ':' .. digits(number) end

-- A gap is recorded by the number right above it and by the time until which anything may wait for it: <number>:<ms>.
-- The higher a gap the later its time, so what has lapsed is at the bottom.
local function read_gap(found)
  local number, until_ms = string.match(found[1] or '', '^(%d+):(%d+)$')
  return tonumber(number), tonumber(until_ms)
end

local function has_gaps(scope)
  while gap_scopes[scope] == nil do
    local found = redis.call('ZRANGE', MISSING .. scope, 0, 0)
    local _, until_ms = read_gap(found)
    if until_ms and until_ms < now_ms then
      redis.call('ZREM', MISSING .. scope, found[1])
    else
      gap_scopes[scope] = until_ms ~= nil
    end
  end
  return gap_scopes[scope]
end

-- A number has arrived. It ends the gap right below the next number, and leaves the rest of that gap, or a new one,
-- below itself.
local function note_arrival(scope, number, block, hold_ms)
  if scope == '' then return end
  local is_gap = number > 0 and not is_remembered(scope, number - 1, block)
  if not has_gaps(scope) and not is_gap then return end
  local key = MISSING .. scope
  local above, until_ms = read_gap(redis.call('ZRANGEBYSCORE', key, '(' .. digits(number), '+inf', 'LIMIT', 0, 1))
  if above == number + 1 then redis.call('ZREMRANGEBYSCORE', key, above, above) end
  if is_gap then
    redis.call('ZADD', key, number, place_of(digits(number), until_ms or now_ms + 2 * hold_ms))
    redis.call('PEXPIRE', key, 2 * hold_ms)
    gap_scopes[scope] = true
  end
end

-- Whether what may be held until then waits for a gap below it.
local function has_gap(scope, number, until_ms)
  local _, ends_ms = read_gap(redis.call('ZREVRANGEBYSCORE', MISSING .. scope, number, '-inf', 'LIMIT', 0, 1))
  return ends_ms ~= nil and ends_ms >= until_ms
end
