-- gather: make messages that follow a leased one in all its lanes part of it, before its run begins. This run and later
-- ones get all of them; they are settled, buried and replayed together.
-- With  joining
-- ARGV  id fence
--       then id, once for each message, in the order of the lanes
-- Returns how many were gathered, or -1 if the lease was lost. The others remain in their places, from the first one on
-- that does not follow directly, has other lanes or another queue, was leased before, is never stopped, or has a turn.
local id, fence = unpack(ARGV, 1, 2)
local SEPARATOR = '[\29\30] ?' -- precedes each message of a group (envelope.py)

even_when_full()
local queue, lanes = check_lease(id, fence)
if not queue then return -1 end
local keys, size = split(lanes), number_of(redis.call('HGET', MESSAGE .. id, 'size')) or 1
local stored = redis.call('GET', BODY .. id) or ''
if redis.call('HEXISTS', MESSAGE .. id, 'taken') == 1 then return 0 end -- leave.lua takes these from the end
local separator = string.match(stored, '^' .. SEPARATOR) or '\30'

-- A stored form as a part of the group; nil if it cannot be one.
local function part_of(stored)
  if not stored then return nil end
  if string.find(stored, '^' .. SEPARATOR) then return (string.gsub(stored, SEPARATOR, separator)) end
  return not string.find(stored, '[\29\30]') and separator .. stored or nil
end

local parts = { part_of(stored) }

local function gather(follower)
  local found = redis.call('HMGET', MESSAGE .. follower, 'state', 'queue', 'lanes', 'fence', 'turn', 'unstoppable', 'size')
  local is_same = found[1] == 'waiting' and found[2] == queue and found[3] == lanes
  if not is_same or found[4] or found[5] or found[6] or same_in_all(keys, 1) ~= follower then return false end
  local part = part_of(redis.call('GET', BODY .. follower))
  if not part then return false end
  parts[#parts + 1], size = part, size + (number_of(found[7]) or 1)
  absorb(follower, queue, keys)
  return true
end

for i = 3, #ARGV do
  if not parts[1] or not gather(ARGV[i]) then break end
end
local gathered = math.max(#parts - 1, 0)
if gathered > 0 then
  redis.call('SET', BODY .. id, table.concat(parts))
  redis.call('HSET', MESSAGE .. id, 'size', size, 'gathered', 1)
  count('collected', gathered)
end
return gathered
