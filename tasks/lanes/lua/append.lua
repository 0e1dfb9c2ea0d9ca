-- append: put a whole batch at the end of its lanes, all or nothing; what was seen before is dropped.
-- With  gaps ends
-- KEYS  1 guard  hash, may be left out: nothing is appended unless its field `fence` is ARGV's
-- ARGV  seen_ttl_s seen_block fence hold_ms
--       then id queue stored scope number problem lanes, once for each message: `scope` and `number` (may be empty)
--       are what it is remembered by, a `problem` buries it at once, `lanes` are keys joined by \n; without a
--       `queue` there is no message, and only the number is remembered
-- Where hold_ms is not 0, messages line up in the order of their numbers: one whose predecessor has not been seen is
-- held for so long at most. Where it is 0, what is held and has a lower number goes before.
-- Returns {added, seen, buried, pending in the groups of these queues, held, late, ms until the next held one is due
-- (-1: none)}, or nil when the guard has another fence
local seen_ttl_s, seen_block, fence, hold_ms = unpack(ARGV, 1, 4)
hold_ms = tonumber(hold_ms)

if KEYS[1] and redis.call('HGET', KEYS[1], 'fence') ~= fence then return false end

local added, seen, buried, held, pending = 0, 0, 0, 0, 0
local remember, groups = {}, {}

local function is_remembered(scope, number)
  local key = SEEN .. scope .. ':' .. math.floor(number / seen_block)
  if remember[key] and remember[key][number % seen_block] then return true end
  return redis.call('GETBIT', key, number % seen_block) == 1
end

local function was_seen(id, scope, number)
  if scope ~= '' then
    if is_remembered(scope, number) then return true end
    local key = SEEN .. scope .. ':' .. math.floor(number / seen_block)
    remember[key] = remember[key] or {}
    remember[key][number % seen_block] = true
  end
  return redis.call('EXISTS', MESSAGE .. id) == 1
end

local function add(id, queue, stored, problem, lanes)
  local seq = next_place()
  redis.call('HSET', MESSAGE .. id, 'state', 'waiting', 'queue', queue, 'lanes', table.concat(lanes, '\n'), 'seq', seq)
  redis.call('SET', BODY .. id, stored)
  if problem ~= '' then
    buried = buried + 1
    return bury(id, nil, problem)
  end
  line_up(id, queue, lanes, seq)
end

for i = 5, #ARGV, 7 do
  local id, queue, stored, scope, number, problem, lanes = unpack(ARGV, i, i + 6)
  if queue ~= '' then groups[group_of(queue)] = true end
  number = tonumber(number)
  if was_seen(id, scope, number) then
    seen = seen + 1
  else
    local keys, waits = distinct(lanes), hold_ms > 0 and has_gap(scope, number, is_remembered)
    if hold_ms == 0 and has_held(scope) then let_go(scope, '-inf', number) end
    if waits then hold_place(queue ~= '' and id or place_of('#', number), scope, number, now_ms + hold_ms) end
    if queue ~= '' then
      added = added + 1
      if waits and problem == '' and keys[1] then
        held = held + 1
        hold(id, queue, stored, place_of(scope, number), keys)
      else
        add(id, queue, stored, problem, keys)
        if hold_ms > 0 and scope ~= '' and keys[1] and problem == '' then note_number(scope, number) end
      end
    end
    if not waits and has_held(scope) then let_go(scope, number + 1, number + 1) end
  end
end
local due_ms = give_up_gaps(500)

-- Last, so that nothing is remembered that is not stored.
for key, offsets in pairs(remember) do
  for offset in pairs(offsets) do redis.call('SETBIT', key, offset, 1) end
  redis.call('EXPIRE', key, seen_ttl_s)
end
count('appended', added)
count('seen', seen)
count('held', held)
count('late', late)
for group in pairs(groups) do pending = pending + redis.call('ZCARD', PENDING .. group) end
ring_bells()
return { added, seen, buried, pending, held, late, due_ms }
