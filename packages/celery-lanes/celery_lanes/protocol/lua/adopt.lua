-- adopt: move messages from the end of an ordinary list, which kombu reads from there, into their lanes, in one step.
-- An element of the list is taken once, by this script or by a worker.
-- With  timers
-- KEYS  the list
-- ARGV  first last
--       then element timer at_ms id queue stored lanes, once for each message, the oldest first: `element` is what the
--       list has for it, between the indexes `first` and `last`, which are negative; a message with a `timer` (may be
--       empty) joins its lanes at `at_ms`. One whose element is not there is not moved
-- Returns for each message 1: it is in its lanes, or the successor of a run (places.lua); 2: it is a timer; 3: it is
-- removed, because its id was known; 0: it was not there
local first, last = unpack(ARGV, 1, 2)

local GONE = '\0' -- an element between the two commands that remove it: an index costs less than a search for each
local index_of, before = {}, math.max(tonumber(first), -redis.call('LLEN', KEYS[1])) - 1
for i, element in ipairs(redis.call('LRANGE', KEYS[1], first, last)) do index_of[element] = before + i end

local NOT_THERE, MOVED, SCHEDULED, KNOWN = 0, 1, 2, 3
local moved = 0

-- A message whose id runs is another one, as of `self.replace()`; one whose id waits is a copy.
local function enter(id, queue, stored, lanes, timer, at_ms)
  if timer ~= '' and redis.call('ZSCORE', TIMERS, timer) then return KNOWN end
  if timer ~= '' and tonumber(at_ms) > now_ms then
    local state = redis.call('HGET', MESSAGE .. id, 'state')
    if state and state ~= 'leased' then return KNOWN end
    set_timer(timer, at_ms, id, queue, lanes, stored)
    return SCHEDULED
  end
  if add_message(id, queue, lanes, stored) then
    moved = moved + 1
    return MOVED
  end
  return set_successor(id, queue, lanes, stored) and MOVED or KNOWN
end

local outcomes, indexes = {}, {}
for i = 3, #ARGV, 7 do
  local element, timer, at_ms, id, queue, stored, lanes = unpack(ARGV, i, i + 6)
  local index, outcome = index_of[element], NOT_THERE
  if index then
    index_of[element], indexes[#indexes + 1] = nil, index
    outcome = enter(id, queue, stored, lanes, timer, at_ms)
  end
  outcomes[#outcomes + 1] = outcome
end
count('appended', moved)
finish()
for _, index in ipairs(indexes) do redis.call('LSET', KEYS[1], index, GONE) end
if indexes[1] then redis.call('LREM', KEYS[1], -#indexes, GONE) end
return outcomes
