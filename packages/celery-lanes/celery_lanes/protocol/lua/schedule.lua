-- schedule: set a timer, unless its message was seen before. If it is due already, it fires at once, after older ones.
-- With  numbers timers
-- ARGV  timer id queue lanes stored at_ms in_ms scope number replaces seen_ttl_s seen_block after_run
--       `at_ms`: when it is due; if empty, `in_ms` from now. The message is remembered by `scope` and `number` (may be
--       empty); `replaces` is 1, or 0 to keep a timer of the same name as it is; `after_run` as in append.lua
-- Returns 1, or 0 if nothing was changed
local timer, id, queue, lanes, stored, at_ms, in_ms, scope, number, replaces, seen_ttl_s, seen_block, after_run = unpack(ARGV, 1, 13)

if replaces == '0' and redis.call('ZSCORE', TIMERS, timer) then return 0 end
local state = redis.call('HGET', MESSAGE .. id, 'state')
if state and not (after_run == '1' and state == 'leased') then return 0 end
if was_remembered(scope, tonumber(number), seen_block, seen_ttl_s) then return 0 end
local due_ms = at_ms ~= '' and tonumber(at_ms) or due_in(in_ms)
set_timer(timer, due_ms, id, queue, lanes, stored)
if due_ms <= now_ms then fire_due(100) end
finish()
return 1
