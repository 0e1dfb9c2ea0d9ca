-- turn: settle finished messages, then lease ready ones, in one step: one round trip, one fsync.
-- With  leasing rotation taking collecting
-- KEYS  the queues, each a list of ready ids, in the order in which they are read: the `first` ones until they are
--       empty, then the others until they are empty, then the `last` ones. One id of each group of queues in turn, in a
--       group one of each queue. Paused queues are skipped
-- ARGV  holder lease_ms room budget max_deaths holding first last last_room times settles
--       then id fence, once for each of `settles`; `times` is what the holder counted: for each field of TIMES a line
--       with the field, a tab and a number. Messages of `last` queues are handed out up to `last_room` messages in all
-- Returns {lost ids, ready messages left (0, 1, or 2: only of `last` queues, without room), suspects left (0 or 1), ms
--       until the next group or timer is due (-1: none), then for each message handed out
--       id, fence, queue, ms since its append or replay, past, stored}; `past` is empty if nothing is known of earlier
--       runs. Otherwise: how often a worker died with it, how often it failed, whether it is parked (0 or 1), ms since
--       its replay (-1: never) and since the last sign of life of a holder that died with it (-1: none, or a run has
--       ended since), how often it was interrupted
local holder, lease_ms, room, budget, max_deaths, holding, first, last, last_room, times, settles = unpack(ARGV, 1, 11)
room, budget, holding, first = tonumber(room), tonumber(budget), tonumber(holding), tonumber(first)
last, last_room = tonumber(last), tonumber(last_room)

-- After two deaths a message is suspected of killing its worker: it is handed out alone, so that no other is affected.
local SUSPECT_AFTER = 2
local lost, suspects, taken = {}, {}, 0
local until_ms = string.format('%.0f', now_ms + lease_ms)
reply = { lost, 0, 0, -1 }

for i = 12, 11 + 2 * settles, 2 do
  local id, queue, lanes = ARGV[i], nil, nil
  if not is_settled[id] then queue, lanes = holds(id, ARGV[i + 1]) end
  if queue then
    settle(id, queue, lanes)
  else
    lost[#lost + 1] = id
  end
end
if settled_ids[1] then flush_removals() else even_when_full() end
end_due(64)

-- Returns how much of the room the message takes.
local function hand_out(id, queue)
  local record = unwritten[id] or record_of(id)
  if record[1] ~= 'ready' and not unwritten[id] then return 0 end -- outdated: gone, or in another state
  local past = past_of(id, record[2])
  local died = tonumber(past[1]) or 0
  if died >= tonumber(max_deaths) then
    bury_with_reason(id, 'its worker died ' .. died .. ' times')
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
  taken = taken + bury_if_it_fails(hand_out, id, queue)
  return true
end

local all = room
if room > 0 then
  repeat -- a message without a body is buried, which makes the next one ready
    in_turn(KEYS, 1, first, take)
    in_turn(KEYS, first + 1, #KEYS - last, take)
    room = math.min(all, last_room)
    in_turn(KEYS, #KEYS - last + 1, #KEYS, take)
    room = all
    local without_body = attach_bodies()
    if without_body > 0 then taken = (#reply - HEAD) / FIELDS end
  until without_body == 0
end
if suspects[1] then reply[3] = 1 end
reply[4] = next_due()
put_back(suspects)
write_ready()

reply[2] = is_any_left(KEYS, taken < last_room and #KEYS or #KEYS - last)
flush_removals()
count('refused', #lost)
count('handed_out', (#reply - HEAD) / FIELDS)
local counted = {}
for field, by in string.gmatch(times, '([^\t]+)\t(%d+)\n') do counted[field] = by end
add_up(TIMES, counted)
wake_workers()
return reply
