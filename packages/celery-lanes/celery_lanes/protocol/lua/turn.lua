-- turn: settle finished messages, then lease ready ones, in one step: one round trip, one fsync.
-- With  ending
-- Seldom  bury_with_reason end_due give_first_permits is_kept_back join_successors leave_limits
-- KEYS  the queues, each a list of ready ids, in the order in which they are read: the `first` ones until they are
--       empty, then the others until they are empty, then the `last` ones. One id of each group of queues in turn, in a
--       group one of each queue; a queue that is named several times has as many turns. Paused queues are skipped
-- ARGV  holder lease_ms room budget max_deaths holding first last last_room times settles
--       then id fence, once for each of `settles`; `times` is what the holder counted: for each field of TIMES a line
--       with the field, a tab and a number. Messages of `last` queues are handed out up to `last_room` messages in all
-- Returns {lost ids, ready messages left (0, 1, or 2: only of `last` queues, without room), suspects left (0 or 1), ms
--       until the next group or timer is due, or the next lane with a rate (-1: none), then for each message handed out
--       id, fence, queue, ms since its append or replay, past, stored}; `past` is empty if nothing is known of earlier
--       runs, and its first lane has no note. Otherwise: how often a worker died with it, how often it failed, whether
--       it is parked (0 or 1), ms since its replay (-1: never) and since the last sign of life of a holder that died
--       with it (-1: none, or a run has ended since), how often it was interrupted, whether it is stopped (0 or 1),
--       whether it is marked and gathered (each 0 or 1), and the note of its first lane, if there is one
local holder, lease_ms, room, budget, max_deaths, holding, first, last, last_room, times, settles = unpack(ARGV, 1, 11)
room, budget, holding, first = tonumber(room), tonumber(budget), tonumber(holding), tonumber(first)
last, last_room = tonumber(last), tonumber(last_room)

local HEAD, FIELDS = 4, 6 -- how many values precede the messages in the reply, and how many each has
local reply = {}
local bodies, leases = {}, {} -- keys of bodies still to be read; pairs of expiry and id still to be written to LEASES

-- The known past of a message: how often a worker died with the message, how often it failed, whether it is parked,
-- in ms its replay and the last sign of life of a holder that died with it, how often it was interrupted, since when it
-- is open again, and whether it is stopped, marked and gathered. A message that was never leased, stopped, marked nor buried has no fence, and no past.
local NO_PAST = {}
local function past_of(id, fence)
  local fields = { 'died', 'failed', 'parked', 'replayed', 'alive', 'interrupted', 'open', 'stopped', 'marked', 'gathered' }
  return fence and redis.call('HMGET', MESSAGE .. id, unpack(fields)) or NO_PAST
end

local is_any_noted -- nil until it is asked

-- Returns the note of the first lane of a message, false if there is none.
local function note_of(id)
  if is_any_noted == nil then is_any_noted = is_special(NOTES) end
  local lane = is_any_noted and string.match(redis.call('HGET', MESSAGE .. id, 'lanes') or '', '^[^\n]+')
  return lane and redis.call('HGET', NOTES, lane)
end

local function format_past(past, note)
  local died, failed, parked, replayed, alive, interrupted, _, stopped, marked, gathered = unpack(past, 1, 10)
  if not (died or failed or parked or replayed or alive or interrupted or stopped or marked or gathered or note) then return '' end
  local function ago(at_ms) return at_ms and math.max(now_ms - at_ms, 0) or -1 end
  local known = { died or 0, failed or 0, parked and 1 or 0, ago(replayed), ago(alive) }
  known[6], known[7], known[8], known[9] = interrupted or 0, stopped and 1 or 0, marked and 1 or 0, gathered and 1 or 0
  return string.format('%d %d %d %d %d %d %d %d %d', unpack(known)) .. (note and ' ' .. note or '')
end

-- Adds a message to the reply, without its body, which `attach_bodies` adds.
local function lease(id, queue, record, past, holder, until_ms)
  local fence, n, at = next_fence(record[2]), #leases, #reply
  local described = format_past(past, note_of(id)) -- this and the next line may fail: nothing is changed before
  local waited_ms = math.max(now_ms - (record[3] or now_us) / 1000, 0) -- since seq, in µs: when it got its place
  redis.call('HSET', MESSAGE .. id, 'state', 'leased', 'fence', fence, 'holder', holder)
  if past[7] then redis.call('HDEL', MESSAGE .. id, 'open') end
  step.unwritten[id] = nil
  bodies[#bodies + 1] = BODY .. id
  leases[n + 1], leases[n + 2] = until_ms, id
  reply[at + 1], reply[at + 2], reply[at + 3] = id, fence, queue
  reply[at + 4], reply[at + 5], reply[at + 6] = waited_ms, described, ''
end

local function bury_with_reason(id, why)
  step.unwritten[id] = nil
  bury(id, redis.call('HGET', MESSAGE .. id, 'lanes'), cjson.encode({ at_ms = now_ms, type = 'Buried', message = why }))
end

-- Returns what `step` returns for a message. If it fails, no script can handle the message, which must not stop the
-- others: it is buried, and takes no room.
local function bury_if_it_fails(step, id, queue)
  local ok, found = pcall(step, id, queue)
  if ok then return found end
  pcall(bury_with_reason, id, 'no script can handle it: ' .. (type(found) == 'table' and found.err or found))
  return 0
end

-- Reads the bodies into the reply. Messages whose body is lost are buried and removed from the reply. Returns how many.
local function attach_bodies()
  if not bodies[1] then return 0 end
  call_in_batches('ZADD', LEASES, leases)
  local stored, lost = redis.call('MGET', unpack(bodies)), 0
  local before = #reply - FIELDS * #bodies
  for i = #bodies, 1, -1 do
    local at = before + FIELDS * i
    reply[at] = stored[i]
    if not stored[i] then
      lost = lost + 1
      bury_with_reason(reply[at - 5], 'its body was lost')
      for _ = 1, FIELDS do table.remove(reply, at - 5) end
    end
  end
  bodies, leases = {}, {}
  return lost
end

-- Takes from one queue of each group in turn, in the order of queues[from] to queues[to]. `take` is called with a queue
-- and the number of calls until its next turn. It returns false to stop, and nil if the queue is empty: then it is the
-- turn of the next queue of its group. in_turn ends when all queues are empty.
local function in_turn(queues, from, to, take)
  local groups, times = {}, {} -- lists of queues, by number and by name; how often a queue has come
  for i = from, to do
    times[queues[i]] = (times[queues[i]] or 0) + 1
    local name = times[queues[i]] .. ' ' .. group_of(queues[i])
    if not groups[name] then
      groups[name] = {}
      groups[#groups + 1] = groups[name]
    end
    table.insert(groups[name], queues[i])
  end
  while groups[1] do
    local group = table.remove(groups, 1)
    local queue = table.remove(group, 1)
    local taken = take(queue, (#groups + 1) * (#group + 1))
    if taken == false then return end
    if taken then group[#group + 1] = queue end
    if group[1] then table.insert(groups, taken and #groups + 1 or 1, group) end
  end
end

-- Returns 0 if no queue has a ready message, 1 if one of the first `n` has, 2 if only others have. Deletes the wake-ups of
-- queues without one, for which no worker waits: it would have popped them.
local function is_any_left(queues, n)
  local unused, left = {}, 0
  note_filled(queues)
  for i, queue in ipairs(queues) do
    if not step.filled[queue] then unused[#unused + 1] = BELL .. queue end
    if left ~= 1 and step.filled[queue] and not is_closed(queue) then left = i <= n and 1 or 2 end
  end
  call_in_batches('DEL', nil, unused)
  return left
end

local popped = {} -- queue -> entries; those from index `at` on are not used yet

-- Returns the next id of a queue, nil or false if there is none. `wanted`: how many the caller may take from the queue.
local function next_ready(queue, wanted)
  local entries = popped[queue]
  local entry = entries and entries[entries.at]
  if entry then
    entries.at = entries.at + 1
  elseif step.filled[queue] ~= false then
    wanted = math.ceil(wanted) -- rounded up: some other queue gets one less
    entries = redis.call('RPOP', queue, wanted) or {}
    entry, entries.at, popped[queue] = entries[1], 2, entries
    if #entries == wanted then step.filled[queue] = nil else step.filled[queue] = false end
  end
  if entry then return id_of(entry, queue) end
  return step.new_ready[queue] and table.remove(step.new_ready[queue], 1)
end

-- Puts back to the front of their queues: the popped entries that were not used, and before them `returned`, which are
-- pairs of a queue and an id.
local function put_back(returned)
  for queue, entries in pairs(popped) do
    for i = #entries, entries.at, -1 do
      redis.call('RPUSH', queue, entries[i])
      step.filled[queue] = true
    end
  end
  for i = #returned, 1, -1 do
    local queue, id = unpack(returned[i])
    if step.unwritten[id] then redis.call('HSET', MESSAGE .. id, 'state', 'ready') end
    redis.call('RPUSH', queue, id)
    step.unwritten[id], step.filled[queue] = nil, true
  end
end

-- After two deaths a message is suspected of killing its worker: it is handed out alone, so that no other is affected.
local SUSPECT_AFTER = 2
local lost, suspects, taken, until_ms = {}, {}, 0, string.format('%.0f', now_ms + lease_ms)
reply = { lost, 0, 0, -1 }

for i = 12, 11 + 2 * settles, 2 do
  local id, queue, lanes = ARGV[i], nil, nil
  if not step.is_settled[id] then queue, lanes = holds(id, ARGV[i + 1]) end
  if queue then
    note_start(lanes, ARGV[i + 1])
    settle(id, queue, lanes)
  else
    lost[#lost + 1] = id
  end
end
if step.settled_ids[1] then remove_settled() else even_when_full() end
if step.is_anything_collecting then end_due(64) end
give_permits()

-- Returns how much of the room the message takes.
local function hand_out(id, queue)
  local record = step.unwritten[id] or record_of(id)
  if record[1] ~= 'ready' and not step.unwritten[id] then return 0 end -- outdated: gone, or in another state
  local past = past_of(id, record[2])
  local died = tonumber(past[1]) or 0
  if died >= tonumber(max_deaths) then
    bury_with_reason(id, 'its worker died ' .. died .. ' times; a hard time limit counts too')
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
  if KEYS[2] then note_filled(KEYS) end -- one command for the empty ones
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
reply[4] = ms_until_due(
  step.is_anything_collecting and COLLECTING,
  step.is_any_timer_set and TIMERS,
  step.is_anything_paced and PACES
)
put_back(suspects)
write_ready()

reply[2] = is_any_left(KEYS, taken < last_room and #KEYS or #KEYS - last)
count('refused', #lost)
count('handed_out', (#reply - HEAD) / FIELDS)
for field, by in string.gmatch(times, '([^\t]+)\t(%d+)\n') do add_to(TIMES, field, by) end
finish()
return reply
