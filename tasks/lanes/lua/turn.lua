-- turn: settle what is done, then hand out what is ready, in one step: one round trip, one fsync.
-- With  ends rotation foreign
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
local lost, taken, leases, suspects = {}, 0, {}, {}
local answer = { lost, 0, 0 }

for i = 10, 9 + 2 * settles, 2 do
  local id, queue, lanes = ARGV[i], nil, nil
  if not is_over[id] then queue, lanes = holds(id, ARGV[i + 1]) end
  if queue then
    settle(id, queue, lanes)
  else
    lost[#lost + 1] = id
  end
end
if over[1] then clear_away() else even_when_full() end
enter_ready()

local function hand_out(id, queue)
  local found = redis.call('HMGET', MESSAGE .. id, 'state', 'fence', 'lanes', 'seq', 'died', 'failed', 'parked',
    'replayed', 'alive')
  local state, old_fence, lanes, seq, died, failed, parked, replayed, alive = unpack(found, 1, 9)
  if state ~= 'ready' then return 0 end -- a leftover: the message is gone, or elsewhere
  local stored = redis.call('GET', BODY .. id)
  died = tonumber(died) or 0
  if not stored or died >= tonumber(max_deaths) then
    local why = stored and 'its worker died ' .. died .. ' times' or 'its body was lost'
    bury(id, lanes, cjson.encode({ at_ms = now_ms, type = 'Buried', message = why }))
    enter_ready()
    return 0
  end
  if died >= SUSPECT_AFTER and holding + taken > 0 then
    suspects[#suspects + 1] = { id, queue }
    return 0
  end
  local fence, n, at = next_fence(old_fence), #leases, #answer
  redis.call('HSET', MESSAGE .. id, 'state', 'leased', 'fence', fence, 'holder', holder)
  leases[n + 1], leases[n + 2] = now_ms + lease_ms, id
  answer[at + 1], answer[at + 2], answer[at + 3] = id, fence, queue
  answer[at + 4], answer[at + 5], answer[at + 6] = died, tonumber(failed) or 0, parked and 1 or 0
  answer[at + 7] = math.max(now_ms - (seq or now_us) / 1000, 0) -- its place in its lanes is the time it was given it
  answer[at + 8], answer[at + 9] = replayed and now_ms - replayed or -1, alive and now_ms - alive or -1
  answer[at + 10] = stored
  return died >= SUSPECT_AFTER and room or 1
end

local function take(queue)
  if taken >= room or budget == 0 then return false end
  local entry = not is_closed(queue) and redis.call('RPOP', queue)
  if not entry then
    filled[queue] = false
    return nil
  end
  filled[queue], budget = nil, budget - 1
  taken = taken + hand_out(id_of(entry, queue), queue)
  return true
end

if room > 0 then
  in_turn(KEYS, 1, first, take)
  in_turn(KEYS, first + 1, #KEYS, take)
end
together('ZADD', LEASES, leases)
for i = #suspects, 1, -1 do
  redis.call('RPUSH', suspects[i][2], suspects[i][1])
  filled[suspects[i][2]], answer[3] = true, 1
end

if is_any_left(KEYS) then answer[2] = 1 end
clear_away()
count('refused', #lost)
count('handed_out', #leases / 2)
for field, by in string.gmatch(times, '([^\t]+)\t(%d+)\n') do redis.call('HINCRBY', TIMES, field, by) end
ring_bells()
return answer
