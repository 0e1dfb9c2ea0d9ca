-- prelude: constants and functions of every verb. A script is the prelude, then the chunks that the header of its verb
-- names (`With`), then the verb, so each state transition is written once. The keys are those of keys.py. The only
-- clock is TIME. The header of a chunk names the mutable locals that it owns, reads and writes; the prelude has none.

local MESSAGE, BODY, ERRORS, JOURNAL = 'lanes:message:', 'lanes:body:', 'lanes:errors:', 'lanes:journal:'
local LANE, BELL, SEEN = 'lanes:lane:', 'lanes:bell:', 'lanes:seen:'
local LEASES, DELAYED, DEAD = 'lanes:leases', 'lanes:delayed', 'lanes:dead'
local COUNTS, SWEPT, PENDING, SETTLED = 'lanes:counts', 'lanes:swept', 'lanes:pending:', 'lanes:settled'
local HELD, GAP, LAST, PAUSED = 'lanes:held', 'lanes:gap:', 'lanes:last', 'lanes:paused'
local PARKED, TIMES, WORKERS, MISSING = 'lanes:parked', 'lanes:times', 'lanes:workers', 'lanes:missing:'
local IDENTITY, LOSSES, COLLECTING = 'lanes:identity', 'lanes:losses', 'lanes:collecting'
local INTERRUPTS, TIMERS, TIMER = 'lanes:interrupts:', 'lanes:timers', 'lanes:timer:'
local SCHEDULES, OVERFLOW, SUCCESSORS = 'lanes:schedules', 'lanes:overflow:', 'lanes:successors'
local STAGED = 'lanes:staged:'

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

local function digits(number) return string.format('%.0f', number) end

-- Greater than any fence this message had, even if Redis lost the last ones in a failover: its clock has advanced.
local clock_fence = digits(now_us)
local function next_fence(old)
  local last = tonumber(old) or 0
  return last < now_us and clock_fence or digits(last + 1)
end

-- The lane keys of a message are joined by \n.
local function split(lanes)
  if not lanes or lanes == '' then return {} end
  if not string.find(lanes, '\n', 1, true) then return { lanes } end
  local keys = {}
  for key in string.gmatch(lanes, '[^\n]+') do keys[#keys + 1] = key end
  return keys
end

-- The queues of a group share a backlog, and groups take turns.
local function group_of(queue) return string.match(queue, '^(.+)%.[^.]*$') or queue end

-- Returns the queue of a message and its lanes as stored, or nothing if the fence holds no lease.
local function holds(id, fence)
  local found = redis.call('HMGET', MESSAGE .. id, 'state', 'fence', 'queue', 'lanes')
  if found[1] == 'leased' and found[2] == fence then return found[3], found[4] end
end
