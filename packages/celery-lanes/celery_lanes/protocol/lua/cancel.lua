-- cancel: remove a timer before it is due.
-- With  timers
-- ARGV  timer
-- Returns 1, or 0 if the timer does not exist
local timer = unpack(ARGV, 1, 1)

even_when_full()
return cancel_timer(timer)
