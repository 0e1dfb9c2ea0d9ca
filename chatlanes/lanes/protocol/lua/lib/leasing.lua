-- leasing: how messages that are ready get a holder, and what it is told of each.
-- With  ends
-- Owns  told bodies leases
-- Writes  unwritten (ready)

local TOLD = 6 -- about each of them
local told, bodies, leases = {}, {}, {} -- the answer; and of what has not been written or read: keys, and of a zset

-- What is known of earlier runs: how often it died and failed, whether it is parked, and ms: its replay, and the last
-- sign of life of a holder that died with it. What was never in hand nor buried has no fence, and no past.
local NO_PAST = {}
local function past_of(id, fence)
  return fence and redis.call('HMGET', MESSAGE .. id, 'died', 'failed', 'parked', 'replayed', 'alive') or NO_PAST
end

local function told_of(past)
  local died, failed, parked, replayed, alive = unpack(past, 1, 5)
  if not (died or failed or parked or replayed or alive) then return '' end
  return table.concat({ died or 0, failed or 0, parked and 1 or 0, replayed and now_ms - replayed or -1,
    alive and now_ms - alive or -1 }, ' ')
end

-- Its body is missing until `hand_over`.
local function lease(id, queue, record, past, holder, until_ms)
  local fence, seq, n, at = next_fence(record[2]), record[3], #leases, #told
  redis.call('HSET', MESSAGE .. id, 'state', 'leased', 'fence', fence, 'holder', holder)
  unwritten[id] = nil
  bodies[#bodies + 1] = BODY .. id
  leases[n + 1], leases[n + 2] = until_ms, id
  told[at + 1], told[at + 2], told[at + 3] = id, fence, queue
  told[at + 4] = math.max(now_ms - (seq or now_us) / 1000, 0) -- its place in its lanes is the time it was given it
  told[at + 5], told[at + 6] = told_of(past), ''
end

local function bury_dead(id, why)
  unwritten[id] = nil
  bury(id, redis.call('HGET', MESSAGE .. id, 'lanes'), cjson.encode({ at_ms = now_ms, type = 'Buried', message = why }))
end

-- Reads the bodies. Returns how many are lost; those are buried, and no longer told of.
local function hand_over()
  if not bodies[1] then return 0 end
  together('ZADD', LEASES, leases)
  local stored, lost = redis.call('MGET', unpack(bodies)), 0
  local before = #told - TOLD * #bodies
  for i = #bodies, 1, -1 do
    local at = before + TOLD * i
    told[at] = stored[i]
    if not stored[i] then
      lost = lost + 1
      bury_dead(told[at - 5], 'its body was lost')
      for _ = 1, TOLD do table.remove(told, at - 5) end
    end
  end
  bodies, leases = {}, {}
  return lost
end
