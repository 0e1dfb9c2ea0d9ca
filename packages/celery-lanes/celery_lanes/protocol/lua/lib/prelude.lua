-- prelude: constants and functions of every verb. A script is the verb, and what it reaches of the prelude and of the
-- chunks that its header names (`With`), so each state transition is written once. The keys are those of keys.py. The
-- only clock is TIME.

local MESSAGE, BODY, ERRORS, JOURNAL = 'lanes:message:', 'lanes:body:', 'lanes:errors:', 'lanes:journal:'
local LANE, BELL, SEEN = 'lanes:lane:', 'lanes:bell:', 'lanes:seen:'
local LEASES, DELAYED, DEAD = 'lanes:leases', 'lanes:delayed', 'lanes:dead'
local COUNTS, SWEPT, PENDING, SETTLED = 'lanes:counts', 'lanes:swept', 'lanes:pending:', 'lanes:settled'
local HELD, GAP, LAST, PAUSED = 'lanes:held', 'lanes:gap:', 'lanes:last', 'lanes:paused'
local PARKED, TIMES, WORKERS, MISSING = 'lanes:parked', 'lanes:times', 'lanes:workers', 'lanes:missing:'
local IDENTITY, LOSSES, COLLECTING = 'lanes:identity', 'lanes:losses', 'lanes:collecting'
local INTERRUPTS, TIMERS, TIMER = 'lanes:interrupts:', 'lanes:timers', 'lanes:timer:'
local SCHEDULES, OVERFLOW, SUCCESSORS = 'lanes:schedules', 'lanes:overflow:', 'lanes:successors'
local STAGED, NOTES, MODES, RATE = 'lanes:staged:', 'lanes:notes', 'lanes:modes', 'lanes:rate:'
local PACES, LIMIT = 'lanes:paces', 'lanes:limit:'

-- The state of a step that several functions share. The chunk that declares a field describes it.
local step = {}

-- Writes that functions postpone to the end of the step are made there together, in this order. A field is declared with
-- its writer, so that no script which changes the field is without it.
step.writers = {}
local REMOVALS, HIGHEST, BODIES, PLACES, NUMBERS, ADMISSIONS, RETURNED, READY = 1, 2, 3, 4, 5, 6, 7, 8
local function put_off(order, write)
  step.writers[order] = write
  return {}
end

-- Ends a step. Each verb that reaches a postponed field calls it once.
local function finish()
  for order = REMOVALS, READY do
    if step.writers[order] then step.writers[order]() end
  end
end

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = math.floor(now_us / 1000)

-- A full Redis (maxmemory, noeviction) refuses the first write of a script if it may take memory. After a first write
-- that takes none, the script may finish. Verbs that bring messages nearer to their end call this, because they free
-- memory.
local function even_when_full() redis.call('DEL', COUNTS .. ':none') end

-- A total that is not a number begins again, because it must not stop the verbs.
local function add_to(key, field, by)
  local done = redis.pcall('HINCRBY', key, field, by)
  if type(done) ~= 'table' then return end
  if string.find(done.err, 'not an integer', 1, true) then redis.call('HDEL', key, field) end
  redis.call('HINCRBY', key, field, by) -- or raises the same error again
end

local function count(name, by)
  if by ~= 0 then add_to(COUNTS, name, by) end
end

-- Returns nil for a text that is not a finite number.
local function number_of(text)
  local number = tonumber(text)
  return number and number - number == 0 and number or nil
end

-- One command for up to 1,000 values: Lua cannot pass many more to a function. The number is even, so pairs stay
-- together.
local function call_in_batches(command, key, values)
  for i = 1, #values, 1000 do
    local last = math.min(i + 999, #values)
    if key then
      redis.call(command, key, unpack(values, i, last))
    else
      redis.call(command, unpack(values, i, last))
    end
  end
end

-- Notes which of these keys exist, from one index to another. One EXISTS is enough if all or none do; otherwise, the first
-- half is asked for, which leaves the number for the other one. Returns the number, which the caller may know.
local function note_existing(known, prefix, names, from, to, found)
  from, to = from or 1, to or #names
  local number = to - from + 1
  if number < 1 then return 0 end
  if not found and number <= 1000 then
    local keys = {}
    for i = from, to do keys[#keys + 1] = prefix .. names[i] end
    found = redis.call('EXISTS', unpack(keys))
  end
  if found == 0 or found == number then
    for i = from, to do known[names[i]] = found > 0 end
    return found
  end
  local middle = math.floor((from + to) / 2)
  local first = note_existing(known, prefix, names, from, middle)
  return first + note_existing(known, prefix, names, middle + 1, to, found and found - first)
end

-- Returns ms until the first member of these zsets is due, -1 if they have none. `false` stands for an empty one.
local function ms_until_due(...)
  local first_ms = math.huge
  for _, zset in ipairs({ ... }) do
    local first = zset and redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')[2]
    first_ms = math.min(first_ms, first or math.huge)
  end
  return first_ms < math.huge and math.max(math.ceil(first_ms - now_ms), 0) or -1
end

local function digits(number) return string.format('%.0f', number) end

-- Greater than any fence this message had, even if Redis lost the last ones in a failover: its clock has advanced.
local clock_fence = digits(now_us)
local function next_fence(old)
  local last = tonumber(old) or 0
  return last < now_us and clock_fence or digits(last + 1)
end

-- The lane keys of a message are joined by \n. Each is returned once. A line for each limit of the message follows:
-- LIMITED, how many may run, a blank, and its key (ready.lua). They are kept as `limits`. If lanes of the message have a
-- rate, a last line follows: PACED, and for each key the ms from a start to the next one (0: the lane has no rate), by
-- blanks. It is kept as `paces`.
local PACED, LIMITED = '\31', '\28'
local function split(lanes)
  if not lanes or lanes == '' then return {} end
  if not string.find(lanes, '[\n\28]') then return { lanes } end
  local keys, known = {}, {}
  for key in string.gmatch(lanes, '[^\n]+') do
    local first = string.byte(key)
    if first == 31 then
      keys.paces = key
    elseif first == 28 then
      keys.limits = keys.limits or {}
      keys.limits[#keys.limits + 1] = key
    elseif not known[key] then
      known[key], keys[#keys + 1] = true, key
    end
  end
  return keys
end

-- As it is stored.
local function join_keys(keys)
  if not (keys.paces or keys.limits) then return keys[2] and table.concat(keys, '\n') or keys[1] or '' end
  local lines = { unpack(keys) }
  for _, limit in ipairs(keys.limits or {}) do lines[#lines + 1] = limit end
  lines[#lines + 1] = keys.paces
  return table.concat(lines, '\n')
end

-- The queues of a group share a backlog, and groups take turns.
local function group_of(queue) return string.match(queue, '^(.+)%.[^.]*$') or queue end

-- Returns the queue of a message and its lanes as stored, or nothing if the fence holds no lease.
local function holds(id, fence)
  local found = redis.call('HMGET', MESSAGE .. id, 'state', 'fence', 'queue', 'lanes')
  if found[1] == 'leased' and found[2] == fence then return found[3], found[4] end
end

-- The check with which a verb begins that changes one leased message. Returns the same as `holds`. A lost lease is
-- counted as refused.
local function check_lease(id, fence)
  local queue, lanes = holds(id, fence)
  if not queue then count('refused', 1) end
  return queue, lanes
end

-- The identity of this database and its totals. A database without an identity gets one: the current time. The number of
-- pending messages is computed from the totals, which costs less than counting each group of queues.
local function history()
  local identity = redis.call('GET', IDENTITY)
  if not identity then
    identity = string.format('%.0f', now_us)
    redis.call('SET', IDENTITY, identity)
  end
  local totals = redis.call('HMGET', COUNTS, 'appended', 'settled', 'buried', 'replayed')
  local appended, settled = number_of(totals[1]) or 0, number_of(totals[2]) or 0
  local pending = appended - settled - (number_of(totals[3]) or 0) + (number_of(totals[4]) or 0)
  return { identity, appended, settled, math.max(pending, 0) }
end

-- Returns a recorded call, or nil.
local function parse_call(noted)
  if not noted then return nil end
  local state, by, what, outcome = string.match(noted, '^(%S+) (%S+) (%S+) (.*)$')
  return { state = state, by = by, what = what, outcome = outcome }
end

-- Returns the recorded call at a position, or nil.
local function call_of(id, position) return parse_call(redis.call('HGET', JOURNAL .. id, position)) end
