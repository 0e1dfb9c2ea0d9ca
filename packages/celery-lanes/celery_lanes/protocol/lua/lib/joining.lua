-- joining: a message joins the group that is last in all its lanes. It gets no record of its own: its body is added to
-- that of the first message. So the whole group has one lease, one fence, one journal, and is settled or buried at
-- once. A group is open until it is leased, so that a later run gets the same messages, and again after an interrupt.
-- A message may join while the group runs: its run is interrupted, gets a new fence, so that it changes nothing more, and
-- the group is open again.
-- A message may also stop the first message of each of its lanes, which ends its run in the same way. A stopped message
-- is handed out once more, so that its worker ends it; nothing joins it, and it is not stopped again.
-- A run that is steered is notified of a message of its group that arrives behind it. It may take the message (take.lua),
-- which then belongs to it like one that has joined.
-- With  ending

local COLLECTED = '\30' -- precedes each message of a group in its stored form (envelope.py)

step.body_at = {} -- id -> the index of its body in new_bodies
step.collected, step.absorbed = 0, 0 -- how many messages joined a group; of those, how many had a record

local function write_bodies() call_in_batches('MSET', nil, step.new_bodies) end
step.new_bodies = put_off(BODIES, write_bodies) -- pairs of a key and a body

-- The calls of a run, and of runs that died before it, stay in the journal, each under the fence of the run and its
-- position, for later runs to read: they are not answered from them. A refused call took no effect.
local function keep_calls(id, fence)
  local journal, kept, moved = redis.call('HGETALL', JOURNAL .. id), {}, {}
  for i = 1, #journal, 2 do
    local position, call = journal[i], journal[i + 1]
    local state = string.match(call, '^(%S+) ')
    if not string.find(position, ' ', 1, true) then moved[#moved + 1] = position end
    if state and state ~= 'refused' and moved[#moved] == position then
      local n = #kept
      kept[n + 1], kept[n + 2] = fence .. ' ' .. position, call
    end
  end
  call_in_batches('HSET', JOURNAL .. id, kept)
  call_in_batches('HDEL', JOURNAL .. id, moved)
end

-- To keep more calls would take too long: such a run is not interrupted. If it is stopped, its calls are forgotten.
local function may_interrupt(id) return redis.call('HLEN', JOURNAL .. id) <= 1000 end

-- Notifies the holder. If that fails, its next command or renewal finds that its run has ended. The caller takes the
-- message back.
local function note_interrupt(id, fence)
  local holder = redis.call('HGET', MESSAGE .. id, 'holder')
  if holder then redis.pcall('PUBLISH', INTERRUPTS .. holder, id .. '#' .. fence) end
  redis.pcall('HINCRBY', MESSAGE .. id, 'interrupted', 1) -- a corrupt count stays: turn.lua buries the message
end

local function interrupt(id)
  local fence = redis.call('HGET', MESSAGE .. id, 'fence')
  note_interrupt(id, fence)
  take_back(id, 'waiting')
  redis.call('HSET', MESSAGE .. id, 'open', now_ms)
  keep_calls(id, fence)
  count('interrupted', 1)
end

-- Makes a stopped message ready at once, under a new fence. Its calls are kept, unless they are too many.
local function end_stopped(id, state, fence)
  if state == 'leased' then note_interrupt(id, fence) end
  if may_interrupt(id) then keep_calls(id, fence or '0') else redis.call('UNLINK', JOURNAL .. id) end
  redis.call('ZREM', DELAYED, id)
  redis.call('ZREM', COLLECTING, id)
  if state == 'gated' then leave_limits(id, limits_in(redis.call('HGET', MESSAGE .. id, 'lanes'))) end
  if state == 'ready' then take_back(id, 'ready') else give_back(id) end -- one that is ready is in its queue
end

local STOPPABLE = { leased = true, ready = true, collecting = true, delayed = true, gated = true }

-- Stops the message unless it waits or is being settled. The field `stopped` is the fence of its last run, 0 if it never
-- ran. A shielded run continues until the shield ends (shield.lua); a later run is a stopped one.
local function stop(id)
  local found = redis.call('HMGET', MESSAGE .. id, 'state', 'fence', 'shielded', 'stopped', 'unstoppable')
  local state, fence, is_shielded, stopped, is_unstoppable = unpack(found, 1, 5)
  if step.unwritten[id] then state = 'ready' end
  if stopped or is_unstoppable or not STOPPABLE[state] then return end
  redis.call('HSET', MESSAGE .. id, 'stopped', fence or '0')
  count('stopped', 1)
  if state ~= 'leased' or not is_shielded then end_stopped(id, state, fence) end
end

local function stop_first(lanes)
  for _, key in ipairs(lanes) do
    local first = redis.call('ZRANGE', LANE .. key, 0, 0)[1]
    if first then stop(first) end
  end
end

local function extend_body(id, stored)
  local at = step.body_at[id]
  if at then
    step.new_bodies[at] = step.new_bodies[at] .. stored
  else
    redis.call('APPEND', BODY .. id, stored)
  end
end

-- A group as it is sent and stored: `quiet_ms max_wait_ms most mode name`. Two are the same if they are equal. The mode
-- is 1 if a message that arrives during a run interrupts it, 2 if the run may take it, and 0 if it waits.
local function limits_of(group)
  local quiet_ms, max_wait_ms, most, mode = string.match(group, '^(%d+) (%d+) (%d+) (%d) ')
  return tonumber(quiet_ms), tonumber(max_wait_ms), tonumber(most), mode == '1', mode == '2'
end

local function due_of(group, size, first_ms)
  local quiet_ms, max_wait_ms, most = limits_of(group)
  return size < most and math.min(first_ms + max_wait_ms, now_ms + quiet_ms) or now_ms
end

-- The message at this index of all these lanes, or nil. The last one is at -1.
local function same_in_all(lanes, index)
  local same
  for _, key in ipairs(lanes) do
    local found = redis.call('ZRANGE', LANE .. key, index, index)[1]
    if not found or (same and same ~= found) then return nil end
    same = found
  end
  return same
end

-- The message directly behind a first one in all its lanes, if it is of the same group and was never leased; its size and
-- its place.
local function follower_of(id, queue, lanes)
  local found = is_first_in_all(id, lanes) and same_in_all(lanes, 1)
  if not found then return nil end
  local mine = redis.call('HMGET', MESSAGE .. id, 'group', 'lanes')
  local its = redis.call('HMGET', MESSAGE .. found, 'group', 'lanes', 'queue', 'fence', 'size', 'seq', 'turn')
  if not mine[1] or its[1] ~= mine[1] or its[2] ~= mine[2] or its[3] ~= queue or its[4] or its[7] then return nil end
  return found, number_of(its[5]) or 1, its[6]
end

-- If the holder is not notified, it finds the message when it is connected again, or the message is the next run.
local function notify_arrival(id, fence)
  local holder = redis.call('HGET', MESSAGE .. id, 'holder')
  if holder then redis.pcall('PUBLISH', INTERRUPTS .. holder, id .. '#' .. fence .. ' arrived') end
end

local function note_turn(id, turn_ms)
  redis.call('HSET', MESSAGE .. id, 'turn', turn_ms)
end

-- The message is the first of its group, unless that is empty. Called before it becomes ready. `turn_ms`: of a message
-- over its rate.
local function start_waiting(id, queue, group, turn_ms)
  if turn_ms then note_turn(id, turn_ms) end
  if group ~= '' then
    redis.call('HSET', MESSAGE .. id, 'group', group)
  end
  set_due(id, queue, math.max(group ~= '' and due_of(group, 1, now_ms) or 0, turn_ms or 0))
end

-- Returns true if the message joined a group. The time of a group that is ready is not extended. A message over its rate
-- ends no run, and joins only a group that waits for its turn; that group waits for the turn of the last one.
local function join_group(queue, group, lanes, stored, turn_ms)
  local id = same_in_all(lanes, -1)
  if not id then return false end
  local found =
    redis.call('HMGET', MESSAGE .. id, 'group', 'queue', 'lanes', 'state', 'fence', 'open', 'size', 'seq', 'shielded', 'stopped', 'turn')
  local state, fence, open_ms, size, seq, is_shielded, stopped, turn = unpack(found, 4, 11)
  size, open_ms, seq = (number_of(size) or 1) + 1, number_of(open_ms), number_of(seq) or now_us
  local _, _, most, interrupts, steers = limits_of(group)
  local is_same = found[1] == group and found[2] == queue and found[3] == table.concat(lanes, '\n')
  if is_same and steers and state == 'leased' and not stopped then notify_arrival(id, fence) end
  if not is_same or size > most or stopped then return false end
  if turn_ms and (fence or not turn or state == 'ready' or step.unwritten[id]) then return false end
  if state == 'leased' and interrupts and not is_shielded and may_interrupt(id) then
    interrupt(id)
    state, open_ms = 'collecting', now_ms
  end
  if fence and not open_ms then return false end
  redis.call('HSET', MESSAGE .. id, 'size', size)
  extend_body(id, stored)
  step.collected = step.collected + 1
  if state == 'ready' or step.unwritten[id] then return true end
  local waits_ms = turn and redis.call('ZSCORE', COLLECTING, id) or 0
  set_due(id, queue, math.max(due_of(group, size, open_ms or seq / 1000), waits_ms, turn_ms or 0))
  if state == 'collecting' then make_ready(id, queue) end
  return true
end

-- Removes a message that joined a group from its lanes, and its record.
local function absorb(id, queue, lanes)
  for _, key in ipairs(lanes) do redis.call('ZREM', LANE .. key, id) end
  redis.call('ZREM', COLLECTING, id)
  step.absorbed = step.absorbed + 1
  redis.call('DEL', MESSAGE .. id, BODY .. id)
  redis.call('ZREM', PENDING .. group_of(queue), id)
  add_to(SETTLED, queue, 1)
  count('settled', 1)
end
