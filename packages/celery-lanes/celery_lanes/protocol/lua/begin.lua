-- begin: record that a call is about to be made, or return its outcome in an earlier run. Extends the lease.
-- ARGV  id fence lease_ms position what cursor
--       `cursor` is 0, or that of the answer `forgetting`
-- Returns {'begun'}, {'done', outcome}, {'refused', outcome}, {'uncertain'}: an earlier run began it and left no outcome,
--       {'different', what it was}: it and all after it are deleted, {'lost'}: nothing was changed,
--       or {'forgetting', cursor, what it was}: as 'different', but more is to be deleted, by another call
local id, fence, lease_ms, position, what, cursor = unpack(ARGV, 1, 6)

even_when_full()
if not check_lease(id, fence) then return { 'lost' } end
redis.call('ZADD', LEASES, now_ms + lease_ms, id)

-- A position is a series, which may be empty, and a number. `last` is the highest number that was begun.
local journal = JOURNAL .. id
local series, number = string.match(position, '^(.-)(%d+)$')
number = tonumber(number)
local last, noted = unpack(redis.call('HMGET', journal, series .. 'last', position))
last = tonumber(last) or 0

-- What other runs recorded from this position on belongs to calls that this run does not make.
local function forget_the_rest()
  local scanned = redis.call('HSCAN', journal, cursor, 'COUNT', 200)
  for i = 1, #scanned[2], 2 do
    local field, call = scanned[2][i], scanned[2][i + 1]
    local its_series, its_number = string.match(field, '^(.-)(%d+)$')
    if its_series == series and tonumber(its_number) >= number and string.match(call, '^%S+ (%S+)') ~= fence then
      redis.call('HDEL', journal, field)
    end
  end
  cursor, last = scanned[1], 0
end

local state, answer = 'begun', { 'begun' }
local found = parse_call(noted)
if cursor ~= '0' or (found and found.what ~= what) then
  local was = found and found.what or ''
  answer = { 'different', was }
  forget_the_rest()
  if cursor ~= '0' then return { 'forgetting', cursor, was } end
elseif found and (found.state == 'done' or (found.state == 'refused' and last > number)) then
  count('answered', 1)
  return { found.state, found.outcome }
elseif found and (found.state == 'doubtful' or (found.state == 'begun' and found.by ~= fence)) then
  state, answer = 'doubtful', { 'uncertain' }
  if found.by ~= fence then count('uncertain', 1) end
end
-- The earlier run made no call after this refusal. A refused call took no effect, so it is made again.
local record = table.concat({ state, fence, what, '' }, ' ')
redis.call('HSET', journal, position, record, series .. 'last', math.max(last, number))
return answer
