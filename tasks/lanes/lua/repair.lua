-- repair: look at a few messages, and make every key agree with what each message records of itself.
-- KEYS  none
-- ARGV  cursor limit lease_ms
-- Returns {the next cursor ("0": been round), how many were mended}
local cursor, limit, lease_ms = unpack(ARGV, 1, 3)

-- A longer list is not searched for one id; it is looked at again when it is shorter.
local SEARCHED = 1000
local mended = 0
local function mend(command, ...)
  redis.call(command, ...)
  mended = mended + 1
end

local function in_lanes(id, lanes, seq)
  for _, key in ipairs(lanes) do
    if not redis.call('ZSCORE', LANE .. key, id) then mend('ZADD', LANE .. key, seq, id) end
  end
end

local function listed(id, queue)
  local length = redis.call('LLEN', queue)
  if length > SEARCHED then return true end
  return length > 0 and redis.call('LPOS', queue, id)
end

local check = {
  waiting = function(id, queue, lanes)
    if first_everywhere(id, lanes) then
      to_ready(id, queue, true)
      mended = mended + 1
    else
      advance(lanes) -- drops ids without a message that stand before it
    end
  end,
  ready = function(id, queue)
    if not listed(id, queue) then mend('RPUSH', queue, id) end
    touched[queue] = true
  end,
  leased = function(id)
    if not redis.call('ZSCORE', LEASES, id) then mend('ZADD', LEASES, now_ms + lease_ms, id) end
  end,
  delayed = function(id)
    if not redis.call('ZSCORE', DELAYED, id) then mend('ZADD', DELAYED, now_ms, id) end
  end,
  buried = function(id)
    if not redis.call('ZSCORE', DEAD, id) then mend('ZADD', DEAD, now_ms, id) end
  end,
}

local scanned = redis.call('SCAN', cursor, 'MATCH', 'lanes:*', 'COUNT', limit)
for _, key in ipairs(scanned[2]) do
  if string.sub(key, 1, #MESSAGE) == MESSAGE then
    local id = string.sub(key, #MESSAGE + 1)
    local found = redis.call('HMGET', key, 'state', 'queue', 'lanes', 'seq')
    if check[found[1]] then
      local lanes = split(found[3])
      if found[1] ~= 'buried' then in_lanes(id, lanes, found[4]) end
      check[found[1]](id, found[2], lanes)
    end
  else
    local id = string.match(key, '^' .. BODY .. '(.*)$') or string.match(key, '^' .. ERRORS .. '(.*)$')
    if id and redis.call('EXISTS', MESSAGE .. id) == 0 then mend('DEL', key) end
  end
end
count('repaired', mended)
ring_bells()
return { scanned[1], mended }
