-- ending: settle or bury a message: it leaves its lanes, and the next messages become ready at once. The other removals
-- of a step are done together by `flush_removals`. Every verb that settles or buries calls it, before any message joins
-- a lane again.
-- With  successors take_back totals
-- Owns  obsolete settled_ids is_settled settled
-- Reads  unwritten (ready) is_any_succeeded (paused)

local obsolete = {} -- keys to delete
local settled_ids, is_settled = {}, {} -- the ids settled in this step; true for each, also while its keys exist
local settled = {} -- queue -> how many of its messages were settled in this step

-- The first message of a lane becomes ready if it is the first in all of its lanes. Ids without a message are removed.
local function advance_lane(key, first)
  while first and not unwritten[first] do
    local record = record_of(first, 'queue', 'lanes')
    local state, queue, lanes = record[1], record[4], record[5]
    if state and not is_settled[first] then
      if state == 'waiting' and (lanes == key or is_first_in_all(first, split(lanes), key)) then
        make_ready(first, queue, record)
      end
      return
    end
    redis.call('ZREM', LANE .. key, first)
    first = redis.call('ZRANGE', LANE .. key, 0, 0)[1]
  end
end

-- A message leaves all its lanes before the first one advances.
local function leave_lanes(id, keys)
  local following = {}
  for _, key in ipairs(keys) do
    local lane = LANE .. key
    local ids = redis.call('ZRANGE', lane, 0, 1)
    local is_last = ids[1] == id and not ids[2]
    if is_last then obsolete[#obsolete + 1] = lane else redis.call('ZREM', lane, id) end
    following[key] = not is_last and (ids[1] == id and ids[2] or ids[1])
  end
  for _, key in ipairs(keys) do
    if following[key] then advance_lane(key, following[key]) end
  end
end

local function settle(id, queue, lanes)
  local n, keys = #obsolete, split(lanes)
  obsolete[n + 1], obsolete[n + 2] = MESSAGE .. id, BODY .. id
  obsolete[n + 3], obsolete[n + 4] = ERRORS .. id, JOURNAL .. id
  settled_ids[#settled_ids + 1], is_settled[id] = id, true
  settled[queue] = (settled[queue] or 0) + 1
  leave_lanes(id, keys)
end

local function bury(id, lanes, problem)
  local queue, keys = take_back(id, 'buried'), split(lanes)
  redis.call('ZREM', PENDING .. group_of(queue), id)
  add_dead_letter(id, problem)
  leave_lanes(id, keys)
end

-- Also counts the settled messages, and lets their successors join.
local function flush_removals()
  if not obsolete[1] then return end
  call_in_batches('UNLINK', nil, obsolete) -- a long journal is freed later
  call_in_batches('ZREM', LEASES, settled_ids)
  local groups = {}
  for queue in pairs(settled) do groups[group_of(queue)] = true end
  for group in pairs(groups) do call_in_batches('ZREM', PENDING .. group, settled_ids) end
  add_up(SETTLED, settled)
  count('settled', #settled_ids)
  local ended = settled_ids
  obsolete, settled_ids, settled = {}, {}, {}
  if not is_any_succeeded then return end
  for _, id in ipairs(ended) do
    if join_successor(id) then is_settled[id] = nil end
  end
  write_places()
end
