-- commit: do the writes of a run and settle its message, in one step. Afterwards the message does not run again.
-- With  committing
-- ARGV  id fence skipped staged
--       then what key value time_ms, once for each write, in this order: `set` (time_ms 0: no expiry), `delete`,
--       `move` to the key `value`, which is overwritten (if `key` does not exist, nothing happens), `add` time_ms to
--       the field `value` of the hash `key`, `push` to the end of the list `key`, `note`: the note of the lane `key` (an
--       empty one is deleted), `mode`: the mode of the lane `key`, or of the first lane of this message (likewise), `at`, `from` or `in`: set the timer `key`
--       for a time, for a time or now if it is past, or in a time from now (`value`: its id, its queue, its lanes and its
--       stored form, as timers.lua joins fields; an empty queue and empty lanes are those of this message), `cancel`, or
--       `assign`: the timer `key` becomes the timer `time_ms`, with this `value`
-- If `staged` is not 0, the writes are that many which stage.lua has stored.
-- Returns 1, 2 if finish.lua must be called until it returns 0, or 0 if the lease was lost and nothing was changed
local id, fence, skipped, staged = unpack(ARGV, 1, 4)

even_when_full()
local queue, lanes = check_lease(id, fence)
if not queue then return 0 end
count('skipped', tonumber(skipped))

if staged ~= '0' then
  local stage = STAGED .. id .. '#' .. fence
  if redis.call('LLEN', stage) ~= tonumber(staged) then return redis.error_reply('TRYAGAIN the writes are not stored') end
  take_back(id, 'committing') -- from here on, they are done whatever happens to the worker
  redis.call('RENAME', stage, STAGED .. id)
  redis.call('PERSIST', STAGED .. id)
  finish_later(id)
  return 2
end
for i = 5, #ARGV, 4 do
  local what, key, value, time_ms = unpack(ARGV, i, i + 3)
  write(queue, lanes, what, key, value, time_ms)
end
note_start(lanes, fence)
settle(id, queue, lanes)
finish()
return 1
