-- append: put a whole batch at the end of its lanes, all or nothing. Messages that were seen before are dropped.
-- With  numbers timers
-- KEYS  1 guard  hash (optional): nothing is appended unless its field `fence` equals `fence`
-- ARGV  seen_ttl_s seen_block fence sets hold_ms
--       then id queue stored scope number problem group after_run stops lanes, once for each message: the message is
--       remembered by `scope` and `number` (may be empty), a `problem` buries it at once, `group` (may be empty) is
--       described in joining.lua, with `after_run` 1 it may be a successor (places.lua), with `stops` 1 it stops the first
--       message of each of its lanes (joining.lua), with 2 it is never stopped itself, `lanes` are keys joined by \n; without a `queue` only the number is
--       remembered
-- `sets` is written to the guard: for each field a line with the field, a tab and its value.
-- If hold_ms is not 0, messages join their lanes in the order of their numbers: one is held for that long while a lower
-- number is missing (numbers.lua). If it is 0, held messages with lower numbers join before.
-- Returns {added, seen, buried, pending in the groups of these queues, held, late, ms until the next held one is due
-- (-1: none), history before this append, added without a record: they joined groups, or are successors}, or nil if the guard has another fence
local seen_ttl_s, seen_block, fence, sets, hold_ms = unpack(ARGV, 1, 5)
hold_ms = tonumber(hold_ms)

local function must_wait(scope, number, until_ms)
  if scope == '' then return false end
  if has_gaps(scope, until_ms - now_ms) and has_gap(scope, number, until_ms) then return true end
  return has_held(scope) and redis.call('ZCOUNT', GAP .. scope, '-inf', '(' .. digits(number)) > 0
end

local is_any_mode -- nil until it is asked

-- The mode that a commit has given to the first lane of a message replaces that of its group: `queue` (no group),
-- `collect`, `interrupt` or `steer`. Returns the group and the stored form, whose beginning depends on the mode
-- (envelope.py).
local DIGITS = { collect = '0', interrupt = '1', steer = '2' }
local BEGINNINGS = { collect = '\30', interrupt = '\29', steer = '\30 ' }
local function in_mode(lane, group, stored)
  if group == '' then return group, stored end
  if is_any_mode == nil then is_any_mode = is_special(MODES) end
  local mode = is_any_mode and redis.call('HGET', MODES, lane)
  local bare = mode and string.gsub(stored, '^[\29\30] ?', '')
  if mode == 'queue' then return '', bare end
  if not mode or not DIGITS[mode] then return group, stored end
  return (string.gsub(group, '^(%d+ %d+ %d+) %d', '%1 ' .. DIGITS[mode])), BEGINNINGS[mode] .. bare
end

local function protect(id)
  redis.call('HSET', MESSAGE .. id, 'unstoppable', 1)
end

local function hold(id, queue, stored, scope, number, until_ms, group, stops, lanes)
  local seq, keys, place = next_place(), table.concat(lanes, '\n'), place_of(scope, number)
  redis.call('HSET', MESSAGE .. id, 'state', 'held', 'queue', queue, 'lanes', keys, 'seq', seq, 'held', place)
  if group ~= '' then redis.call('HSET', MESSAGE .. id, 'group', group) end
  if stops == '2' then protect(id) end
  redis.call('SET', BODY .. id, stored)
  redis.call('ZADD', PENDING .. group_of(queue), seq, id)
  redis.call('ZADD', GAP .. scope, number, id)
  redis.call('ZADD', HELD, until_ms, place)
  step.held_scopes[scope] = true
end

if KEYS[1] and redis.call('HGET', KEYS[1], 'fence') ~= fence then return false end

local before = history()
local added, seen, buried, held, pending, succeeding = 0, 0, 0, 0, 0, 0
local groups, exists = {}, {} -- of the messages; id -> whether the message exists

local function add(id, queue, stored, problem, group, stops, lanes)
  if group ~= '' and join_group(queue, group, lanes, stored) then return end
  local seq = next_place()
  local state, is_first = 'buried', false
  if problem == '' then
    is_first = join_lanes(id, queue, lanes, seq)
    state = is_first and group == '' and not in_paused_lane(lanes) and 'ready' or 'waiting'
  end
  local joined = lanes[2] and table.concat(lanes, '\n') or lanes[1] or ''
  redis.call('HSET', MESSAGE .. id, 'state', state, 'queue', queue, 'lanes', joined, 'seq', seq)
  local n = #step.new_bodies
  step.new_bodies[n + 1], step.new_bodies[n + 2], step.body_at[id] = BODY .. id, stored, n + 2
  if stops == '2' then protect(id) end
  if group ~= '' then start_group(id, queue, group) end
  if group ~= '' and is_first then make_ready(id, queue) end
  if state == 'ready' then add_ready(id, queue) end
  if state == 'buried' then
    buried = buried + 1
    redis.call('HSET', MESSAGE .. id, 'fence', next_fence())
    add_dead_letter(id, problem)
  end
end

if step.is_any_timer_set then
  redis.call('HSET', COUNTS, 'seq', next_place()) -- a full Redis refuses this first write, and with it the append
  fire_due(20) -- before the messages join
end
local ids, keys = {}, {}
for i = 6, #ARGV, 10 do
  ids[#ids + 1] = ARGV[i]
  for _, key in ipairs(split(ARGV[i + 9])) do keys[#keys + 1] = key end
end
note_existing(exists, MESSAGE, ids)
note_existing(step.occupied, LANE, keys)

for i = 6, #ARGV, 10 do
  local id, queue, stored, scope, number, problem, group, after_run, stops, lanes = unpack(ARGV, i, i + 9)
  if queue ~= '' then groups[group_of(queue)] = true end
  number = tonumber(number)
  if was_remembered(scope, number, seen_block, seen_ttl_s) then
    seen = seen + 1
  elseif exists[id] then
    local succeeds = after_run == '1' and set_successor(id, queue, lanes, stored) and 1 or 0
    added, succeeding, seen = added + succeeds, succeeding + succeeds, seen + 1 - succeeds
  else
    local keys, until_ms = split(lanes), now_ms + hold_ms
    if hold_ms == 0 then close_gaps(scope, number) else note_arrival(scope, number, seen_block, hold_ms) end
    if queue ~= '' then
      added = added + 1
      exists[id] = true
      group, stored = in_mode(keys[1], group, stored)
      if stops == '1' and problem == '' then stop_first(keys) end
      local is_ordered = hold_ms > 0 and problem == '' and keys[1] ~= nil
      if is_ordered and must_wait(scope, number, until_ms) then
        held = held + 1
        hold(id, queue, stored, scope, number, until_ms, group, stops, keys)
      else
        add(id, queue, stored, problem, group, stops, keys)
        if is_ordered and scope ~= '' then note_number(scope, number) end
      end
    end
    join_due(scope)
  end
end
local due_ms = expire_holds(500)

finish()
for field, value in string.gmatch(sets, '([^\t]+)\t([^\n]*)\n') do redis.call('HSET', KEYS[1], field, value) end
count('appended', added - step.collected + step.absorbed - succeeding)
count('collected', step.collected)
count('seen', seen)
count('held', held)
count('late', step.late)
for group in pairs(groups) do pending = pending + redis.call('ZCARD', PENDING .. group) end
return { added, seen, buried, pending, held, step.late, due_ms, before, step.collected - step.absorbed + succeeding }
