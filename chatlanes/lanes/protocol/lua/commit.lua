-- commit: do the writes of a run and settle its message, in one step. Afterwards the message does not run again.
-- With  ending lease timers
-- KEYS  none
-- ARGV  id fence skipped
--       then what key value time_ms, once for each write, in this order: `set` (time_ms 0: no expiry), `delete`,
--       `move` to the key `value`, which is overwritten (if `key` does not exist, nothing happens), `add` time_ms to
--       the field `value` of the hash `key`, `push` to the end of the list `key`, `at`, `from` or `in`: set the timer `key`
--       for a time, for a time or now if it is past, or in a time from now (`value`: its id, its queue, its lanes and its
--       stored form, as timers.lua joins fields; an empty queue and empty lanes are those of this message), `cancel`, or
--       `assign`: the timer `key` becomes the timer `time_ms`, with this `value`
-- Returns 1, or 0 if the lease was lost and nothing was changed
local id, fence, skipped = unpack(ARGV, 1, 3)

even_when_full()
local queue, lanes = check_lease(id, fence)
if not queue then return 0 end

for i = 4, #ARGV, 4 do
  local what, key, value, time_ms = unpack(ARGV, i, i + 3)
  if what == 'set' and time_ms == '0' then
    redis.call('SET', key, value)
  elseif what == 'set' then
    redis.call('SET', key, value, 'PX', time_ms)
  elseif what == 'delete' then
    redis.call('DEL', key)
  elseif what == 'add' then
    redis.call('HINCRBY', key, value, time_ms)
  elseif what == 'push' then
    redis.call('RPUSH', key, value)
  elseif what == 'cancel' then
    cancel_timer(key)
  elseif what == 'assign' then
    assign_timer(key, time_ms, unpack((fields_of(value, 1, 4))))
  elseif what == 'at' or what == 'from' or what == 'in' then
    local timer_id, timer_queue, timer_lanes, stored = unpack((fields_of(value, 1, 4)))
    local due_ms = what == 'in' and due_in(time_ms) or tonumber(time_ms)
    if what == 'from' then due_ms = math.max(due_ms, now_ms) end
    if timer_queue == '' then timer_queue = queue end
    if timer_lanes == '' then timer_lanes = lanes end
    set_timer(key, due_ms, timer_id, timer_queue, timer_lanes, stored)
  elseif redis.call('EXISTS', key) == 1 then
    redis.call('RENAME', key, value)
  end
end
settle(id, queue, lanes)
flush_removals()
write_places()
count('skipped', tonumber(skipped))
wake_workers()
return 1
