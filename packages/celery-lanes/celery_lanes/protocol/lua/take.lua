-- take: let a run take the next message of the group that follows it in all its lanes and was never leased.
-- With  joining
-- ARGV  id fence known place
--       `place`: a number that says when in the run it is taken, for later runs; empty: none is taken. `known`: how many
--       messages the holder knows that this run, and runs before it, have taken; if there are more, the answer to an
--       earlier call was lost, and none is taken now
-- Returns {messages taken so far, bodies, whether another one follows (0 or 1)}, or nil if the lease was lost: a JSON array
--       of [place, id, seq], with the id and the place that the message, or the first one of its group, had in its lanes;
--       and a text that ends with the bodies of those that the holder does not know
-- A message that was taken is at the end of the body of the run, as if it had joined: it is settled, buried and replayed
-- with it.
local id, fence, known, place = unpack(ARGV, 1, 4)
local MOST_TAKEN = 1000 -- by one message: a later run must get all of them

even_when_full()
local queue, lanes = check_lease(id, fence)
if not queue then return false end
local keys, noted = split(lanes), redis.call('HGET', MESSAGE .. id, 'taken')
local taken, bodies = noted and cjson.decode(noted) or {}, ''

local function next_follower()
  if #taken >= MOST_TAKEN or in_paused_lane(keys) or is_closed(queue) then return nil end
  return follower_of(id, queue, keys)
end

-- Takes the first of the messages that are collected in this one, which keeps the others.
local function take(follower, size, seq)
  local stored = redis.call('GET', BODY .. follower)
  if not stored then return end -- turn.lua buries the message
  local rest = string.find(stored, COLLECTED, 2, true) or #stored + 1
  bodies = string.sub(stored, 1, rest - 1)
  extend_body(id, bodies)
  taken[#taken + 1] = { tonumber(place), follower, seq }
  noted = cjson.encode(taken)
  local mine = number_of(redis.call('HGET', MESSAGE .. id, 'size')) or 1
  redis.call('HSET', MESSAGE .. id, 'taken', noted, 'size', mine + 1)
  if size > 1 then
    redis.call('SET', BODY .. follower, string.sub(stored, rest))
    redis.call('HSET', MESSAGE .. follower, 'size', size - 1)
  else
    absorb(follower, queue, keys)
  end
  count('steered', 1)
end

local follower, size, seq = next_follower()
if place ~= '' and #taken > tonumber(known) then
  bodies = redis.call('GET', BODY .. id)
elseif place ~= '' and follower then
  take(follower, size, seq)
  follower = next_follower()
end
finish()
return { noted or '[]', bodies, follower and 1 or 0 }
