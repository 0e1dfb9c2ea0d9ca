-- commit: write what a run leaves behind and settle its message, in one step. After it nothing is run again.
-- With  ends
-- KEYS  none
-- ARGV  id fence skipped
--       then what key value ttl_ms, once for each write, done in their order: `set` (ttl_ms 0: for ever), `delete`, or
--       `move` to the key `value`, whatever that held (nothing happens when there is nothing to move)
-- Returns 1, or 0 when the lease was lost and nothing was changed
local id, fence, skipped = unpack(ARGV, 1, 3)

even_when_full()
local queue, lanes = holds(id, fence)
if not queue then
  count('refused', 1)
  return 0
end

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
clear_away()
count('skipped', tonumber(skipped))
ring_bells()
return 1
