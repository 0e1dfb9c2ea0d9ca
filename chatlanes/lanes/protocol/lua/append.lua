-- append: put a whole batch at the end of its lanes, all or nothing; what was seen before is dropped.
-- With  gaps back ahead history
-- KEYS  1 guard  hash, may be left out: nothing is appended unless its field `fence` is ARGV's
-- ARGV  seen_ttl_s seen_block fence hold_ms
--       then id queue stored scope number problem lanes, once for each message: `scope` and `number` (may be empty)
--       are what it is remembered by, a `problem` buries it at once, `lanes` are keys joined by \n; without a
--       `queue` there is no message, and only the number is remembered
-- Where hold_ms is not 0, messages line up in the order of their numbers: one below which a number is missing is held
-- for that long (gaps.lua). Where it is 0, what is held and has a lower number goes before.
-- Returns {added, seen, buried, pending in the groups of these queues, held, late, ms until the next held one is due
-- (-1: none), history before this append}, or nil when the guard has another fence
local seen_ttl_s, seen_block, fence, hold_ms = unpack(ARGV, 1, 4)
hold_ms = tonumber(hold_ms)

if KEYS[1] and redis.call('HGET', KEYS[1], 'fence') ~= fence then return false end

local before = history()
local added, seen, buried, held, pending = 0, 0, 0, 0, 0
local groups, bodies = {}, {}

local function was_seen(id, scope, number)
  if scope ~= '' then
    if is_remembered(scope, number, seen_block) then return true end
    remember(scope, number, seen_block)
  end
  return is_there(id)
end

local function add(id, queue, stored, problem, lanes)
  local seq = next_place()
  local state = 'buried'
  if problem == '' then
    local is_ready = stand(id, queue, lanes, seq) and not in_paused_lane(lanes)
    state = is_ready and 'ready' or 'waiting'
  end
  local joined, n = lanes[2] and table.concat(lanes, '\n') or lanes[1] or '', #bodies
  redis.call('HSET', MESSAGE .. id, 'state', state, 'queue', queue, 'lanes', joined, 'seq', seq)
  bodies[n + 1], bodies[n + 2] = BODY .. id, stored
  if state == 'ready' then enter(id, queue) end
  if state == 'buried' then
    buried = buried + 1
    redis.call('HSET', MESSAGE .. id, 'fence', next_fence())
    to_dead(id, problem)
  end
end

if #ARGV > 11 then look_ahead(5, 7) end
for i = 5, #ARGV, 7 do
  local id, queue, stored, scope, number, problem, lanes = unpack(ARGV, i, i + 6)
  if queue ~= '' then groups[group_of(queue)] = true end
  number = tonumber(number)
  if was_seen(id, scope, number) then
    seen = seen + 1
  else
    local keys, until_ms = distinct(lanes), now_ms + hold_ms
    if hold_ms == 0 then close_gaps(scope, number) else note_arrival(scope, number, seen_block, hold_ms) end
    if queue ~= '' then
      added = added + 1
      existing[id] = true
      local is_ordered = hold_ms > 0 and problem == '' and keys[1] ~= nil
      if is_ordered and must_wait(scope, number, until_ms) then
        held = held + 1
        hold(id, queue, stored, scope, number, until_ms, keys)
      else
        add(id, queue, stored, problem, keys)
        if is_ordered and scope ~= '' then note_number(scope, number) end
      end
    end
    advance(scope)
  end
end
local due_ms = give_up_gaps(500)

together('MSET', nil, bodies)
note_places()
write_down(seen_ttl_s) -- last, so that nothing is remembered that is not stored
count('appended', added)
count('seen', seen)
count('held', held)
count('late', late)
for group in pairs(groups) do pending = pending + redis.call('ZCARD', PENDING .. group) end
ring_bells()
return { added, seen, buried, pending, held, late, due_ms, before }
