-- repair: check a few keys, and make them agree with the records of the messages.
-- With  timers
-- ARGV  cursor limit lease_ms
-- Returns {the next cursor ("0": the round is complete), how many repairs were made}
local cursor, limit, lease_ms = unpack(ARGV, 1, 3)

local left = 200 -- of the members of long keys, this many may still be checked in this step
local function note_checked(members)
  left = math.max(left - #members, 0)
  return members
end

local fixed = 0
local function fix(command, ...)
  redis.call(command, ...)
  fixed = fixed + 1
end

local function is_lost(id) return redis.call('EXISTS', MESSAGE .. id) == 0 end

local function must_be_in(zset, score)
  return function(id) return redis.call('ZSCORE', zset, id) or fix('ZADD', zset, score, id) end
end

-- True if the message stood in all its lanes. A lost lane gets its messages back during a round, in any order: which
-- one is first is known only after it.
local function in_lanes(id, lanes, seq)
  local before = fixed
  for _, key in ipairs(lanes) do must_be_in(LANE .. key, seq)(id) end
  return fixed == before
end

-- A longer list is not searched for an id; it is checked in a later round, when it is shorter.
local SEARCHED = 1000

local checks = {
  waiting = function(id, queue, lanes)
    if not is_first_in_all(id, lanes) or in_paused_lane(lanes) then return end
    fix('HSET', MESSAGE .. id, 'state', 'ready')
    return_to_ready(id, queue, lanes.limits)
  end,
  -- It waits in the first of its limits in which it has no permit.
  gated = function(id, queue, lanes, seq)
    for _, limit in ipairs(lanes.limits or {}) do
      local _, key = parse_limit(limit)
      local score = redis.call('ZSCORE', LIMIT .. key, id)
      if not score then return fix('ZADD', LIMIT .. key, seq, id) end
      if tonumber(score) > 0 then return end
    end
    fix('HSET', MESSAGE .. id, 'state', 'ready')
    return_to_ready(id, queue, lanes.limits)
  end,
  ready = function(id, queue)
    if redis.call('LLEN', queue) <= SEARCHED and not redis.call('LPOS', queue, id) then fix('RPUSH', queue, id) end
    step.filled[queue] = true -- with this message, or with more than are searched
  end,
  leased = must_be_in(LEASES, now_ms + lease_ms),
  delayed = must_be_in(DELAYED, now_ms),
  committing = must_be_in(DELAYED, now_ms),
  collecting = must_be_in(COLLECTING, now_ms),
  buried = must_be_in(DEAD, now_ms),
  -- Only the lowest held message of a scope needs an entry in HELD: a higher one has none once it has waited for long
  -- enough.
  held = function(id)
    local place = redis.call('HGET', MESSAGE .. id, 'held')
    local scope, number = string.match(place, '^(.*):(%d+)$')
    must_be_in(GAP .. scope, number)(id)
    if redis.call('ZRANGE', GAP .. scope, 0, 0)[1] == id then must_be_in(HELD, now_ms)(place) end
  end,
}

-- The times of timers (TIMERS) must agree with the timers of their owners (TIMER, OVERFLOW). A lost time is taken from
-- the id, if it was completed by it; without one, the timer is due now.
local function repair_time(owner, fields)
  local id = timer_of(owner, fields)
  if id then must_be_in(TIMERS, string.match(id, ':(%d+):%d+$') or now_ms)(owner .. '\n' .. fields[1]) end
end

local function has_record(owner, name)
  local text = redis.call('GET', TIMER .. owner) or ''
  return string.find(text, #name .. ':' .. name, 1, true) or redis.call('HEXISTS', OVERFLOW .. owner, name) == 1
end

local function repair_times()
  for _, timer in ipairs(note_checked(redis.call('ZRANDMEMBER', TIMERS, left))) do
    local owner, name = owner_and_name(timer)
    if not owner or not has_record(owner, name) then fix('ZREM', TIMERS, timer) end
  end
end

local HAS_PERMITS = { ready = true, leased = true, committing = true }

local function repair_limits(id, state, limits, seq)
  if not HAS_PERMITS[state] or redis.call('HEXISTS', MESSAGE .. id, 'stopped') == 1 then return end
  for _, limit in ipairs(limits) do
    local _, key = parse_limit(limit)
    must_be_in(LIMIT .. key, -seq)(id)
  end
end

local check_key = {
  [MESSAGE] = function(id)
    local state, queue, lanes, seq = unpack(redis.call('HMGET', MESSAGE .. id, 'state', 'queue', 'lanes', 'seq'), 1, 4)
    local keys, check = split(lanes), checks[state]
    if not check then return end
    if state ~= 'buried' then must_be_in(PENDING .. group_of(queue), seq)(id) end
    if state == 'buried' or state == 'held' or in_lanes(id, keys, seq) then
      if keys.limits then repair_limits(id, state, keys.limits, seq) end
      check(id, queue, keys, seq)
    end
  end,
  -- A message that was settled by an older release, which does not know limits, has left its permit taken.
  [LIMIT] = function(key)
    for _, id in ipairs(note_checked(redis.call('ZRANDMEMBER', LIMIT .. key, left))) do
      local state = redis.call('HGET', MESSAGE .. id, 'state')
      if state ~= 'gated' and not HAS_PERMITS[state] then fix('ZREM', LIMIT .. key, id) end
    end
    step.contested[key] = true
  end,
  [LANE] = function(key)
    for _, first in ipairs(redis.call('ZRANGE', LANE .. key, 0, 9)) do
      if not is_lost(first) then break end
      fix('ZREM', LANE .. key, first)
    end
  end,
  -- A long backlog is not searched: each round checks a sample.
  [PENDING] = function(group)
    for _, id in ipairs(note_checked(redis.call('ZRANDMEMBER', PENDING .. group, left))) do
      if is_lost(id) then fix('ZREM', PENDING .. group, id) end
    end
  end,
  [TIMER] = function(owner)
    local text, at = redis.call('GET', TIMER .. owner), 1
    while at <= #text do
      local fields, after = fields_of(text, at, TIMER_FIELDS)
      if not fields[1] then fix('SET', TIMER .. owner, string.sub(text, 1, at - 1)) end
      repair_time(owner, fields)
      at = after
    end
  end,
  [OVERFLOW] = function(owner)
    local found = note_checked(redis.call('HRANDFIELD', OVERFLOW .. owner, left, 'WITHVALUES'))
    for i = 2, #found, 2 do repair_time(owner, (fields_of(found[i], 1, TIMER_FIELDS))) end
  end,
}

-- A message without a record cannot be handed out.
for _, prefix in ipairs({ BODY, ERRORS, JOURNAL }) do
  check_key[prefix] = function(id)
    if not is_lost(id) then return end
    fix('DEL', prefix .. id)
    redis.call('ZREM', DEAD, id)
  end
end

local scanned = redis.call('SCAN', cursor, 'MATCH', 'lanes:*', 'COUNT', limit)
for _, key in ipairs(scanned[2]) do
  local prefix = string.match(key, '^lanes:%l+:')
  if key == TIMERS then repair_times() end
  if check_key[prefix] then check_key[prefix](string.sub(key, #prefix + 1)) end
end
count('repaired', fixed)
finish()
return { scanned[1], fixed }
