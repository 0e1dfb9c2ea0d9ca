-- missing: the numbers of a scope that have not arrived although higher ones have. The first message above a missing
-- number, and those that arrive within hold_ms of it, wait for it, each for at most hold_ms. Later ones do not wait.
-- With  seen
-- Owns  gap_scopes

local gap_scopes = {} -- scope -> whether a gap is recorded; nil: not known

local function place_of(scope, number) return scope .. ':' .. digits(number) end

-- The entry of a gap is <number>:<ms>: the number right above it, and the time until which messages may wait for it.
-- A higher gap has a later time, so the entries that have expired are the lowest ones.
local function read_gap(found)
  local number, until_ms = string.match(found[1] or '', '^(%d+):(%d+)$')
  return tonumber(number), tonumber(until_ms)
end

-- `hold_ms`: of this append. A gap that lasts longer than one of now was found before the clock was set back.
local function has_gaps(scope, hold_ms)
  while gap_scopes[scope] == nil do
    local found = redis.call('ZRANGE', MISSING .. scope, 0, 0)
    local _, until_ms = read_gap(found)
    if until_ms and (until_ms < now_ms or until_ms > now_ms + 2 * hold_ms) then
      redis.call('ZREM', MISSING .. scope, found[1])
    else
      gap_scopes[scope] = until_ms ~= nil
    end
  end
  return gap_scopes[scope]
end

-- Records that a number has arrived. The entry of the next number, if any, is removed. If the number below is missing,
-- this number gets an entry: for the rest of the gap, or for a new gap.
local function note_arrival(scope, number, block, hold_ms)
  if scope == '' then return end
  local is_gap = number > 0 and not is_remembered(scope, number - 1, block)
  if not has_gaps(scope, hold_ms) and not is_gap then return end
  local key = MISSING .. scope
  local above, until_ms = read_gap(redis.call('ZRANGEBYSCORE', key, '(' .. digits(number), '+inf', 'LIMIT', 0, 1))
  if above == number + 1 then redis.call('ZREMRANGEBYSCORE', key, above, above) end
  if is_gap then
    redis.call('ZADD', key, number, place_of(digits(number), until_ms or now_ms + 2 * hold_ms))
    redis.call('PEXPIRE', key, 2 * hold_ms)
    gap_scopes[scope] = true
  end
end

-- True if a message that may be held until `until_ms` must wait for a gap below it.
local function has_gap(scope, number, until_ms)
  local _, ends_ms = read_gap(redis.call('ZREVRANGEBYSCORE', MISSING .. scope, number, '-inf', 'LIMIT', 0, 1))
  return ends_ms ~= nil and ends_ms >= until_ms
end
