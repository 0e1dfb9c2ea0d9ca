-- ending: take a message from its holder, settle it or bury it. A message that is settled or buried leaves its lanes, and
-- the next messages become ready at once. The other removals of a step are done together.
-- With  places

-- Notes that a message of these lanes was handed out with this fence, so when it started: if they have rates, the next
-- start in each is later by its interval. Nothing else of the lanes was handed out since. So a run that is in progress
-- needs no note, and one that took longer than the interval leaves none.
local function note_start(lanes, fence)
  if not lanes or not string.find(lanes, PACED, 1, true) then return end
  local keys, i = split(lanes), 0
  local started_ms = math.ceil(math.min(tonumber(fence) or now_us, now_us) / 1000)
  for interval_ms in string.gmatch(keys.paces, '%d+') do
    i = i + 1
    if interval_ms ~= '0' and keys[i] and started_ms + interval_ms > now_ms then
      even_when_full()
      redis.call('ZADD', PACES, started_ms + interval_ms, keys[i])
      step.is_anything_paced = true
    end
  end
end

-- Gives the message a new fence, so that its old holder is refused from here on. Returns its queue and its limits. Its run
-- counts for the rates of its lanes, unless it `never_ran`. It keeps its permits if it is ready again, or committing.
local function take_back(id, state, never_ran)
  local found = redis.call('HMGET', MESSAGE .. id, 'fence', 'queue', 'state', 'lanes')
  if found[3] == 'leased' and not never_ran then note_start(found[4], found[1]) end
  redis.call('HSET', MESSAGE .. id, 'state', state, 'fence', next_fence(found[1]))
  redis.call('HDEL', MESSAGE .. id, 'holder', 'open', 'shielded', 'turn')
  redis.call('ZREM', LEASES, id)
  local limits = limits_in(found[4])
  if state ~= 'ready' and state ~= 'committing' then leave_limits(id, limits) end
  return found[2], limits
end

-- The message is ready again, at the front of its queue.
local function give_back(id, never_ran) return_to_ready(id, take_back(id, 'ready', never_ran)) end

-- The holder died while it had the message. `alive_ms` is the time of its last sign of life: the recovery time is
-- measured from there, until a run ends.
local function count_death(id, alive_ms)
  redis.pcall('HINCRBY', MESSAGE .. id, 'died', 1) -- a corrupt count stays: turn.lua buries the message
  redis.call('HSET', MESSAGE .. id, 'alive', math.floor(alive_ms))
end

local function add_dead_letter(id, problem)
  redis.call('RPUSH', ERRORS .. id, problem)
  redis.call('ZADD', DEAD, now_ms, id)
  count('buried', 1)
end

-- The ids settled in this step; is_settled: true for each, even while its keys exist.
step.settled_ids, step.is_settled = {}, {}
step.settled = {} -- queue -> how many of its messages were settled in this step

-- The first message of a lane becomes ready if it is the first in all of its lanes. Ids without a message are removed.
local function advance_lane(key, first)
  while first and not step.unwritten[first] do
    local record = record_of(first, 'queue', 'lanes')
    local state, queue, lanes = record[1], record[4], record[5]
    if state and not step.is_settled[first] then
      if state == 'waiting' and (lanes == key or is_first_in_all(first, split(lanes), key)) then
        make_ready(first, queue, record, limits_in(lanes))
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
    if is_last then step.obsolete[#step.obsolete + 1] = lane else redis.call('ZREM', lane, id) end
    following[key] = not is_last and (ids[1] == id and ids[2] or ids[1])
  end
  for _, key in ipairs(keys) do
    if following[key] then advance_lane(key, following[key]) end
  end
end

local function settle(id, queue, lanes)
  local n, keys = #step.obsolete, split(lanes)
  step.obsolete[n + 1], step.obsolete[n + 2] = MESSAGE .. id, BODY .. id
  step.obsolete[n + 3], step.obsolete[n + 4] = ERRORS .. id, JOURNAL .. id
  step.settled_ids[#step.settled_ids + 1], step.is_settled[id] = id, true
  step.settled[queue] = (step.settled[queue] or 0) + 1
  if keys.limits then leave_limits(id, keys.limits) end
  leave_lanes(id, keys)
end

local function bury(id, lanes, problem)
  local queue, keys = take_back(id, 'buried'), split(lanes)
  redis.call('ZREM', PENDING .. group_of(queue), id)
  add_dead_letter(id, problem)
  leave_lanes(id, keys)
end

local function join_successors(ended)
  for _, id in ipairs(ended) do
    if join_successor(id) then step.is_settled[id] = nil end
  end
  write_places()
end

-- Also counts the settled messages, and lets their successors join. Called earlier than at the end of the step if other
-- messages may join a lane in between.
local function remove_settled()
  if not step.obsolete[1] then return end
  call_in_batches('UNLINK', nil, step.obsolete) -- a long journal is freed later
  call_in_batches('ZREM', LEASES, step.settled_ids)
  local groups = {}
  for queue in pairs(step.settled) do groups[group_of(queue)] = true end
  for group in pairs(groups) do call_in_batches('ZREM', PENDING .. group, step.settled_ids) end
  for queue, n in pairs(step.settled) do add_to(SETTLED, queue, n) end
  count('settled', #step.settled_ids)
  local ended = step.settled_ids
  step.obsolete, step.settled_ids, step.settled = {}, {}, {}
  if step.is_any_succeeded then join_successors(ended) end
end

step.obsolete = put_off(REMOVALS, remove_settled) -- keys to delete
