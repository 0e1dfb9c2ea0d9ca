-- commit: do the writes of a run and settle its message, in one step. Afterwards the message does not run again.
-- With  ending lease
-- KEYS  none
-- ARGV  id fence skipped
--       then what key value ttl_ms, once for each write, in this order: `set` (ttl_ms 0: no expiry), `delete`, or
--       `move` to the key `value`, which is overwritten; if `key` does not exist, nothing happens
-- Returns 1, or 0 if the lease was lost and nothing was changed
local id, fence, skipped = unpack(ARGV, 1, 3)

even_when_full()
local queue, lanes = check_lease(id, fence)
if not queue then return 0 end

for i = 4, #ARGV, 4 do
  local what, key, value, ttl_ms = unpack(ARGV, i, i + 3)
  if what == 'set' and ttl_ms == '0' then
    redis.call('SET', key, value)
  elseif what == 'set' then
    redis.call('SET', key, value, 'PX', ttl_ms)
  elseif what == 'delete' then
    redis.call('DEL', key)
  elseif redis.call('EXISTS', key) == 1 then
    redis.call('RENAME', key, value)
  end
end
settle(id, queue, lanes)
flush_removals()
count('skipped', tonumber(skipped))
wake_workers()
return 1
