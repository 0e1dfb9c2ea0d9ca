-- leasing: lease ready messages to a holder, and describe each of them in the reply.
-- With  ending
-- Owns  reply bodies leases
-- Writes  unwritten (ready)

local HEAD, FIELDS = 4, 6 -- how many values precede the messages in the reply, and how many each has
local reply = {}
local bodies, leases = {}, {} -- keys of bodies still to be read; pairs of expiry and id still to be written to LEASES

-- The known past of a message: how often a worker died with the message, how often it failed, whether it is parked,
-- in ms its replay and the last sign of life of a holder that died with it, how often it was interrupted, and since when
-- it is open again. A message that was never leased nor
-- buried has no fence, and no past.
local NO_PAST = {}
local function past_of(id, fence)
  local fields = { 'died', 'failed', 'parked', 'replayed', 'alive', 'interrupted', 'open' }
  return fence and redis.call('HMGET', MESSAGE .. id, unpack(fields)) or NO_PAST
end

local function format_past(past)
  local died, failed, parked, replayed, alive, interrupted = unpack(past, 1, 6)
  if not (died or failed or parked or replayed or alive or interrupted) then return '' end
  local function ago(at_ms) return at_ms and math.max(now_ms - at_ms, 0) or -1 end
  local known = { died or 0, failed or 0, parked and 1 or 0, ago(replayed), ago(alive), interrupted or 0 }
  return string.format('%d %d %d %d %d %d', unpack(known))
end

-- Adds a message to the reply, without its body, which `attach_bodies` adds.
local function lease(id, queue, record, past, holder, until_ms)
  local fence, n, at = next_fence(record[2]), #leases, #reply
  local described = format_past(past) -- this and the next line may fail: nothing is changed before
  local waited_ms = math.max(now_ms - (record[3] or now_us) / 1000, 0) -- since seq, in µs: when it got its place
  redis.call('HSET', MESSAGE .. id, 'state', 'leased', 'fence', fence, 'holder', holder)
  if past[7] then redis.call('HDEL', MESSAGE .. id, 'open') end
  unwritten[id] = nil
  bodies[#bodies + 1] = BODY .. id
  leases[n + 1], leases[n + 2] = until_ms, id
  reply[at + 1], reply[at + 2], reply[at + 3] = id, fence, queue
  reply[at + 4], reply[at + 5], reply[at + 6] = waited_ms, described, ''
end

local function bury_with_reason(id, why)
  unwritten[id] = nil
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
