-- prelude: shared by every verb. When a verb is loaded it comes first, then the chunks that the verb's header names
-- (`With`), so that every transition between two states is written once. Keys are those of keys.py; TIME is the one
-- clock. A chunk's header says which mutable locals it owns, and whose it reads or writes; the prelude has none.

local MESSAGE, BODY, ERRORS, JOURNAL = 'lanes:message:', 'lanes:body:', 'lanes:errors:', 'lanes:journal:'
local LANE, BELL, SEEN = 'lanes:lane:', 'lanes:bell:', 'lanes:seen:'
local LEASES, DELAYED, DEAD = 'lanes:leases', 'lanes:delayed', 'lanes:dead'
local COUNTS, SWEPT, PENDING, SETTLED = 'lanes:counts', 'lanes:swept', 'lanes:pending:', 'lanes:settled'
local HELD, GAP, LAST, PAUSED = 'lanes:held', 'lanes:gap:', 'lanes:last', 'lanes:paused'
local PARKED, TIMES, WORKERS, MISSING = 'lanes:parked', 'lanes:times', 'lanes:workers', 'lanes:missing:'
local IDENTITY, LOSSES = 'lanes:identity', 'lanes:losses'

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = math.floor(now_us / 1000)

-- A full Redis (maxmemory, noeviction) refuses a script's first write if that could take memory; after one that takes
-- none it lets it finish. What brings messages nearer to their end goes on, for that is what makes room.
local function even_when_full() redis.call('DEL', COUNTS .. ':none') end

local function count(name, by)
  if by ~= 0 then redis.call('HINCRBY', COUNTS, name, by) end
end

-- One command for all of them, and not one for each; but no more at once than Lua can pass on. What belongs together
-- comes in twos.
local function together(command, key, values)
  for i = 1, #values, 1000 do
    local last = math.min(i + 999, #values)
    if key then
      redis.call(command, key, unpack(values, i, last))
    else
      redis.call(command, unpack(values, i, last))
    end
  end
end

-- Those of the keys that are there, or that are not. It is mostly all or none of them: then one question is enough.
local function which(keys, there)
  if keys[1001] then
    local these = {}
    for i = 1, #keys, 1000 do
      local some = which({ unpack(keys, i, math.min(i + 999, #keys)) }, there)
      for _, key in ipairs(some) do these[#these + 1] = key end
    end
    return these
  end
  local found = keys[1] and redis.call('EXISTS', unpack(keys)) or 0
  if found == 0 then return there and {} or keys end
  if found == #keys then return there and keys or {} end
  local these = {}
  for _, key in ipairs(keys) do
    if (redis.call('EXISTS', key) == 1) == there then these[#these + 1] = key end
  end
  return these
end

-- Greater than any fence this message had, also when Redis forgot the last ones (a failover): its clock went on.
local clock_fence = string.format('%.0f', now_us)
local function next_fence(old)
  local last = tonumber(old) or 0
  return last < now_us and clock_fence or string.format('%.0f', last + 1)
end

-- Keys are joined by \n.
local function split(lanes)
  if not lanes or lanes == '' then return {} end
  if not string.find(lanes, '\n', 1, true) then return { lanes } end
  local keys = {}
  for key in string.gmatch(lanes, '[^\n]+') do keys[#keys + 1] = key end
  return keys
end

-- The queues of a group share a backlog, and have their turn among those of other groups.
local function group_of(queue) return string.match(queue, '^(.+)%.[^.]*$') or queue end

-- Its queue, and its lanes as its record has them; nothing when the lease is over.
local function holds(id, fence)
  local found = redis.call('HMGET', MESSAGE .. id, 'state', 'fence', 'queue', 'lanes')
  if found[1] == 'leased' and found[2] == fence then return found[3], found[4] end
end
