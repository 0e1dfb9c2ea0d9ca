-- turn: settle what is done, then hand out what is ready, in one step: one round trip, one fsync.
-- KEYS  the queues, each a list of ready ids, in the order to look at them: the `first` ones until they are empty, then
--       the others. One id of each group of queues in turn, and inside of a group one of each queue; none of paused ones
-- ARGV  holder lease_ms room budget max_deaths holding first times settles
--       then id fence, once for each of `settles`; `times` is what the holder counted: fields of TIMES, a tab, a number, \n
-- Returns {lost ids, ready messages left (0 or 1), suspects left (0 or 1), then for each message handed out
--       id, fence, queue, died, failed, parked (0 or 1), ms since its append or replay, since its replay (-1: never),
--       since the last sign of life of a holder that died with it, if that was the last thing (-1: not), stored}
local holder, lease_ms, room, budget, max_deaths, holding, first, times, settles = unpack(ARGV, 1, 9)
room, budget, holding, first = tonumber(room), tonumber(budget), tonumber(holding), tonumber(first)

-- After two deaths a message is suspected of killing its worker: it is handed out alone, so that nothing dies beside it.
local SUSPECT_AFTER = 2
local lost, taken, suspects = {}, 0, {}
local answer = { lost, 0, 0 }

even_when_full()
for i = 10, 9 + 2 * settles, 2 do
  local mine = holds(ARGV[i], ARGV[i + 1])
  if mine then
    settle(ARGV[i], mine)
  else
    lost[#lost + 1] = ARGV[i]
  end
end

local FIELDS = { 'state', 'fence', 'lanes', 'died', 'failed', 'replayed', 'seq', 'parked', 'alive' }

local function hand_out(id, queue)
  local found = redis.call('HMGET', MESSAGE .. id, unpack(FIELDS))
  if found[1] ~= 'ready' then return 0 end -- a leftover: the message is gone, or elsewhere
  local died, stored = tonumber(found[4]) or 0, redis.call('GET', BODY .. id)
  if not stored or died >= tonumber(max_deaths) then
    local why = stored and 'its worker died ' .. died .. ' times' or 'its body was lost'
    bury(id, split(found[3]), cjson.encode({ at_ms = now_ms, type = 'Buried', message = why }))
    return 0
  end
  if died >= SUSPECT_AFTER and holding + taken > 0 then
    suspects[#suspects + 1] = { id, queue }
    return 0
  end
  local fence = next_fence(found[2])
  redis.call('HSET', MESSAGE .. id, 'state', 'leased', 'fence', fence, 'holder', holder)
  redis.call('ZADD', LEASES, now_ms + lease_ms, id)
  local waited = math.max(now_ms - (found[7] or now_us) / 1000, 0) -- its place in its lanes is the time it was given it
  local replayed, alive = found[6] and now_ms - found[6] or -1, found[9] and now_ms - found[9] or -1
  local parked, failed = found[8] and 1 or 0, tonumber(found[5]) or 0
  for _, value in ipairs({ id, fence, queue, died, failed, parked, waited, replayed, alive, stored }) do
    answer[#answer + 1] = value
  end
  return died >= SUSPECT_AFTER and room or 1
end

local function take(queue)
  local entry = redis.call('RPOP', queue)
  if entry then taken, budget = taken + hand_out(id_of(entry, queue), queue), budget - 1 end
  return entry
end

local function has_room() return taken < room and budget > 0 end

local before, others, is_open = {}, {}, {}
for i, queue in ipairs(KEYS) do
  is_open[queue] = not is_paused('queue', queue) and not is_paused('group', group_of(queue))
  if is_open[queue] then table.insert(i <= first and before or others, queue) end
end
in_turn(before, has_room, take)
in_turn(others, has_room, take)

for i = #suspects, 1, -1 do redis.call('RPUSH', suspects[i][2], suspects[i][1]) end
for _, queue in ipairs(KEYS) do
  if is_open[queue] and redis.call('LLEN', queue) > 0 then
    answer[2], touched[queue] = 1, true
  else
    redis.call('DEL', BELL .. queue) -- nobody waits for this bell, or it would be gone
  end
end
answer[3] = math.min(#suspects, 1)
count_settled()
count('refused', #lost)
count('handed_out', (#answer - 3) / 10)
for field, by in string.gmatch(times, '([^\t]+)\t(%d+)\n') do redis.call('HINCRBY', TIMES, field, by) end
ring_bells()
return answer
