-- ends: how a message leaves its lanes, settled or buried; they go on at once. What else there is of all that end in a
-- step goes together, with `clear_away`, which every verb that ends something calls, before anything lines up anew.
-- With  ready back totals
-- Owns  obsolete over is_over settled
-- Reads  unwritten (ready)

local obsolete = {} -- keys
local over, is_over = {}, {} -- ids that are settled, and true for each of them, also while its keys are still there
local settled = {} -- queue -> how many of it were settled in this step

-- The first of a lane becomes ready when it is the first of all of its lanes; an id without a message is no first.
local function advance(key, first)
  while first and not unwritten[first] do
    local record = record_of(first, 'queue', 'lanes')
    local state, queue, lanes = record[1], record[4], record[5]
    if state and not is_over[first] then
      if state == 'waiting' and (lanes == key or first_everywhere(first, split(lanes), key)) then
        to_ready(first, queue, record)
      end
      return
    end
    redis.call('ZREM', LANE .. key, first)
    first = redis.call('ZRANGE', LANE .. key, 0, 0)[1]
  end
end

-- Leaves its first `n` lanes, all of them before any of them goes on.
local function leave(id, keys, n)
  if n == 0 then return end
  local key, lane = keys[n], LANE .. keys[n]
  local ids = redis.call('ZRANGE', lane, 0, 1)
  local is_last = ids[1] == id and not ids[2]
  if is_last then obsolete[#obsolete + 1] = lane else redis.call('ZREM', lane, id) end
  leave(id, keys, n - 1)
  if not is_last then advance(key, ids[1] == id and ids[2] or ids[1]) end
end

local function settle(id, queue, lanes)
  local n, keys = #obsolete, split(lanes)
  obsolete[n + 1], obsolete[n + 2] = MESSAGE .. id, BODY .. id
  obsolete[n + 3], obsolete[n + 4] = ERRORS .. id, JOURNAL .. id
  over[#over + 1], is_over[id] = id, true
  settled[queue] = (settled[queue] or 0) + 1
  leave(id, keys, #keys)
end

local function bury(id, lanes, problem)
  local queue, keys = take_back(id, 'buried'), split(lanes)
  redis.call('ZREM', PENDING .. group_of(queue), id)
  to_dead(id, problem)
  leave(id, keys, #keys)
end

-- And counts what was settled.
local function clear_away()
  if not obsolete[1] then return end
  together('DEL', nil, obsolete)
  together('ZREM', LEASES, over)
  local groups = {}
  for queue in pairs(settled) do groups[group_of(queue)] = true end
  for group in pairs(groups) do together('ZREM', PENDING .. group, over) end
  add_up(SETTLED, settled)
  count('settled', #over)
  obsolete, over, settled = {}, {}, {}
end
