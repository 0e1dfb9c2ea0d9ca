-- turn: settle what is done, then hand out what is ready, in one step: one round trip, one fsync.
-- With  leasing rotation taking
-- KEYS  the queues, each a list of ready ids, in the order to look at them: the `first` ones until they are empty, then
--       the others. One id of each group of queues in turn, and inside of a group one of each queue; none of paused ones
-- ARGV  holder lease_ms room budget max_deaths holding first times settles
--       then id fence, once for each of `settles`; `times` is what the holder counted: fields of TIMES, a tab, a number, \n
-- Returns {lost ids, ready messages left (0 or 1), suspects left (0 or 1), then for each message handed out
--       id, fence, queue, ms since its append or replay, past, stored}; `past` is empty when nothing is known of earlier
--       runs, or how often it died, how often it failed, whether it is parked (0 or 1), ms since its replay (-1: never)
--       and since the last sign of life of a holder that died with it, if that was the last thing (-1: not)
local holder, lease_ms, room, budget, max_deaths, holding, first, times, settles = unpack(ARGV, 1, 9)
room, budget, holding, first = tonumber(room), tonumber(budget), tonumber(holding), tonumber(first)

-- After two deaths a message is suspected of killing its worker: it is handed out alone, so that nothing dies beside it.
local SUSPECT_AFTER = 2
local lost, suspects, taken = {}, {}, 0
local until_ms = string.format('%.0f', now_ms + lease_ms)
told = { lost, 0, 0 }

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

-- Returns how much room it takes.
local function hand_out(id, queue)
  local record = unwritten[id] or record_of(id)
  if record[1] ~= 'ready' and not unwritten[id] then return 0 end -- a leftover: the message is gone, or elsewhere
  local past = past_of(id, record[2])
  local died = tonumber(past[1]) or 0
  if died >= tonumber(max_deaths) then
    bury_dead(id, 'its worker died ' .. died .. ' times')
    return 0
  end
  if died >= SUSPECT_AFTER and holding + taken > 0 then
    suspects[#suspects + 1] = { queue, id }
    return 0
  end
  lease(id, queue, record, past, holder, until_ms)
  return died >= SUSPECT_AFTER and room or 1
end

local function take(queue, among)
  if taken >= room or budget == 0 then return false end
  local id = not is_closed(queue) and next_ready(queue, (room - taken) / among)
  if not id then return nil end
  budget = budget - 1
  taken = taken + hand_out(id, queue)
  return true
end

if room > 0 then
  repeat -- what comes behind one whose body is lost is ready now
    in_turn(KEYS, 1, first, take)
    in_turn(KEYS, first + 1, #KEYS, take)
    local without_body = hand_over()
    if without_body > 0 then taken = (#told - 3) / TOLD end
  until without_body == 0
end
if suspects[1] then told[3] = 1 end
put_back(suspects)
enter_ready()

if is_any_left(KEYS) then told[2] = 1 end
clear_away()
count('refused', #lost)
count('handed_out', (#told - 3) / TOLD)
local counted = {}
for field, by in string.gmatch(times, '([^\t]+)\t(%d+)\n') do counted[field] = by end
add_up(TIMES, counted)
ring_bells()
return told
