-- append: put a whole batch at the end of its lanes, all or nothing. Messages that were seen before are dropped.
-- With  numbers timers
-- Seldom  add_dead_letter close_gaps close_last expire_holds fire give_first_permits hold in_mode is_kept_back join_due
-- Seldom  join_group mark must_wait note_arrival note_number over_rate protect set_successor start_waiting stop_first write_rates
-- KEYS  1 guard  hash (optional): nothing is appended unless its field `fence` equals `fence`
-- ARGV  seen_ttl_s seen_block fence sets hold_ms
--       then id queue stored scope number problem group after_run stops rate lanes, once for each message: the message is
--       remembered by `scope` and `number` (may be empty), a `problem` buries it at once, `group` (may be empty) is
--       described in joining.lua, with `after_run` 1 it may be a successor (places.lua), with `stops` 1 it stops the first
--       message of each of its lanes (joining.lua), with 2 it is never stopped itself, `rate` (may be empty) is described below, `lanes` are keys joined by \n; without a `queue` only the number is
--       remembered
-- `sets` is written to the guard: for each field a line with the field, a tab and its value.
-- If hold_ms is not 0, messages join their lanes in the order of their numbers: one is held for that long while a lower
-- number is missing (numbers.lua). If it is 0, held messages with lower numbers join before.
-- Returns {added, seen, buried, pending in the groups of these queues, held, late, ms until the next held one is due
-- (-1: none), history before this append, added without a record: they joined groups, or are successors; over their
-- rates and not added}, or nil if the guard has another fence
local seen_ttl_s, seen_block, fence, sets, hold_ms = unpack(ARGV, 1, 5)
hold_ms = tonumber(hold_ms)

local function must_wait(scope, number, until_ms)
  if scope == '' then return false end
  if has_gaps(scope, until_ms - now_ms) and has_gap(scope, number, until_ms) then return true end
  return step.is_any_held and has_held(scope) and redis.call('ZCOUNT', GAP .. scope, '-inf', '(' .. digits(number)) > 0
end

local is_any_mode -- nil until it is asked

-- The mode that a commit has given to the first lane of a message replaces that of its group: `queue` (no group),
-- `collect`, `interrupt` or `steer`. Returns the group and the stored form, whose beginning depends on the mode
-- (envelope.py).
local function in_mode(lane, group, stored)
  local modes = { collect = '0', interrupt = '1', steer = '2' }
  local beginnings = { collect = '\30', interrupt = '\29', steer = '\30 ' }
  if is_any_mode == nil then is_any_mode = is_special(MODES) end
  local mode = is_any_mode and redis.call('HGET', MODES, lane)
  local bare = mode and string.gsub(stored, '^[\29\30] ?', '')
  if mode == 'queue' then return '', bare end
  if not mode or not modes[mode] then return group, stored end
  return (string.gsub(group, '^(%d+ %d+ %d+) %d', '%1 ' .. modes[mode])), beginnings[mode] .. bare
end

local function protect(id)
  redis.call('HSET', MESSAGE .. id, 'unstoppable', 1)
end

-- Its run finds that it is marked. Nothing joins it.
local function mark(id)
  redis.call('HSET', MESSAGE .. id, 'marked', 1, 'fence', next_fence())
end

local function hold(id, queue, stored, scope, number, until_ms, group, stops, over, lanes)
  local seq, keys, place = next_place(), join_keys(lanes), place_of(scope, number)
  redis.call('HSET', MESSAGE .. id, 'state', 'held', 'queue', queue, 'lanes', keys, 'seq', seq, 'held', place)
  if group ~= '' then redis.call('HSET', MESSAGE .. id, 'group', group) end
  if tonumber(over) then note_turn(id, over) end
  if over == 'mark' then mark(id) end
  if stops == '2' then protect(id) end
  redis.call('SET', BODY .. id, stored)
  redis.call('ZADD', PENDING .. group_of(queue), seq, id)
  redis.call('ZADD', GAP .. scope, number, id)
  redis.call('ZADD', HELD, until_ms, place)
  step.is_any_held, step.held_scopes[scope] = true, true
end

-- A rate limits how many messages of a key are added: `most` at once, and then one in every `per_ms / most`. It is sent as
-- `most per_ms over key`. What becomes of a message over its rate depends on `over`:
--   drop   it is not added
--   delay  it is added, and is not handed out before its turn: its lanes wait with it
--   mark   the first one within per_ms is added, marked, so that its run can answer; the others are not added
-- The record of a key is `full_us at_us marked_us`: when it may have `most` messages at once again, when that was
-- written, and until when no other message is marked.
local rates = {} -- key -> its record

-- A record that cannot be read counts as none. After the clock was set back, its times keep their distance from now.
local function rate_of(key)
  local found = redis.pcall('GET', RATE .. key)
  local full, at, marked = string.match(type(found) == 'string' and found or '', '^(%d+) (%d+) (%d+)$')
  local back = math.max((tonumber(at) or 0) - now_us, 0)
  rates[key] = { full_us = (tonumber(full) or 0) - back, marked_us = (tonumber(marked) or 0) - back }
  return rates[key]
end

-- Counts a message. Returns nil if it is within its rate; otherwise `drop`, `mark`, or the time of its turn in ms.
local function over_rate(rate)
  local most, per_ms, over, key = string.match(rate, '^(%d+) (%d+) (%l+) (.*)$')
  local per_us, known = per_ms * 1000, rates[key] or rate_of(key)
  if over ~= 'delay' then known.full_us = math.min(known.full_us, now_us + per_us) end
  local full_us = math.max(known.full_us, now_us) + math.floor(per_us / most)
  local turn_us = full_us - per_us
  if turn_us <= now_us or over == 'delay' then known.full_us = full_us end
  if turn_us <= now_us then return nil end
  if over == 'delay' then
    count('rate_delayed', 1)
    return math.ceil(turn_us / 1000)
  end
  if over == 'mark' and known.marked_us <= now_us then
    count('rate_marked', 1)
    known.marked_us = now_us + per_us
    return 'mark'
  end
  return 'drop'
end

local function write_rates()
  for key, known in pairs(rates) do
    local kept_ms = math.ceil((math.max(known.full_us, known.marked_us) - now_us) / 1000)
    local record = digits(known.full_us) .. ' ' .. digits(now_us) .. ' ' .. digits(math.max(known.marked_us, 0))
    if kept_ms > 0 then redis.call('SET', RATE .. key, record, 'PX', kept_ms) end
  end
end

if KEYS[1] and redis.call('HGET', KEYS[1], 'fence') ~= fence then return false end

local before = history()
local added, seen, buried, held, pending, succeeding, dropped = 0, 0, 0, 0, 0, 0, 0
local groups, exists = {}, {} -- of the messages; id -> whether the message exists

local function add(id, queue, stored, problem, group, stops, over, lanes)
  local turn_ms = tonumber(over)
  if group ~= '' and join_group(queue, group, lanes, stored, turn_ms) then return end
  local waits = group ~= '' or turn_ms ~= nil
  local seq = next_place()
  local state, is_first = 'buried', false
  if problem == '' then
    is_first = join_lanes(id, queue, lanes, seq)
    state = is_first and not waits and not in_paused_lane(lanes) and 'ready' or 'waiting'
  end
  if (lanes.limits or paced_until(lanes)) and state == 'ready' then state = 'waiting' end
  redis.call('HSET', MESSAGE .. id, 'state', state, 'queue', queue, 'lanes', join_keys(lanes), 'seq', seq)
  local n = #step.new_bodies
  step.new_bodies[n + 1], step.new_bodies[n + 2], step.body_at[id] = BODY .. id, stored, n + 2
  if stops == '2' then protect(id) end
  if over == 'mark' then mark(id) end
  if waits then start_waiting(id, queue, group, turn_ms) end
  if is_first and state == 'waiting' then make_ready(id, queue, nil, lanes.limits) end
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
for i = 6, #ARGV, 11 do
  ids[#ids + 1] = ARGV[i]
  for _, key in ipairs(split(ARGV[i + 10])) do keys[#keys + 1] = key end
end
note_existing(exists, MESSAGE, ids)
note_existing(step.occupied, LANE, keys)

for i = 6, #ARGV, 11 do
  local id, queue, stored, scope, number, problem, group, after_run, stops, rate, lanes = unpack(ARGV, i, i + 10)
  if queue ~= '' then groups[group_of(queue)] = true end
  number = tonumber(number)
  if was_remembered(scope, number, seen_block, seen_ttl_s) then
    seen = seen + 1
  elseif exists[id] then
    local succeeds = after_run == '1' and set_successor(id, queue, lanes, stored) and 1 or 0
    added, succeeding, seen = added + succeeds, succeeding + succeeds, seen + 1 - succeeds
  else
    local keys, until_ms = split(lanes), now_ms + hold_ms
    if hold_ms > 0 then
      note_arrival(scope, number, seen_block, hold_ms)
    elseif step.is_any_held then
      close_gaps(scope, number)
    end
    local over = rate ~= '' and queue ~= '' and problem == '' and over_rate(rate) or nil
    if over == 'drop' then
      dropped = dropped + 1
    elseif queue ~= '' then
      added = added + 1
      exists[id] = true
      if group ~= '' then group, stored = in_mode(keys[1], group, stored) end
      if over == 'mark' then group = '' end
      if stops == '1' and problem == '' then stop_first(keys) end
      local is_ordered = hold_ms > 0 and problem == '' and keys[1] ~= nil
      if is_ordered and must_wait(scope, number, until_ms) then
        held = held + 1
        hold(id, queue, stored, scope, number, until_ms, group, stops, over, keys)
      else
        add(id, queue, stored, problem, group, stops, over, keys)
        if is_ordered and scope ~= '' then note_number(scope, number) end
      end
    end
    if step.is_any_held then join_due(scope) end
  end
end
local due_ms = step.is_any_held and expire_holds(500) or -1

finish()
if next(rates) then write_rates() end
for field, value in string.gmatch(sets, '([^\t]+)\t([^\n]*)\n') do redis.call('HSET', KEYS[1], field, value) end
count('appended', added - step.collected + step.absorbed - succeeding)
count('collected', step.collected)
count('seen', seen)
count('held', held)
count('late', step.late)
count('rate_dropped', dropped)
for group in pairs(groups) do pending = pending + redis.call('ZCARD', PENDING .. group) end
return { added, seen, buried, pending, held, step.late, due_ms, before, step.collected - step.absorbed + succeeding, dropped }
