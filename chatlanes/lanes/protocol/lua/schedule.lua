-- schedule: set a timer, unless its message was seen before. If it is due already, it fires at once, after older ones.
-- With  timers seen
-- KEYS  none
-- ARGV  timer id queue lanes stored at_ms in_ms scope number replaces seen_ttl_s seen_block
--       `at_ms`: when it is due; if empty, `in_ms` from now. The message is remembered by `scope` and `number` (may be
--       empty); `replaces` is 1, or 0 to keep a timer of the same name as it is
-- Returns 1, or 0 if nothing was changed
local timer, id, queue, lanes, stored, at_ms, in_ms, scope, number, replaces, seen_ttl_s, seen_block = unpack(ARGV, 1, 12)

if replaces == '0' and redis.call('ZSCORE', TIMERS, timer) then return 0 end
if redis.call('EXISTS', MESSAGE .. id) == 1 then return 0 end
if scope ~= '' then
  number = tonumber(number)
  if is_remembered(scope, number, seen_block) then return 0 end
  remember(scope, number, seen_block)
end
local due_ms = at_ms ~= '' and tonumber(at_ms) or due_in(in_ms)
set_timer(timer, due_ms, id, queue, lanes, stored)
if due_ms <= now_ms then fire_due(100) end
write_places()
write_seen(seen_ttl_s)
wake_workers()
return 1
