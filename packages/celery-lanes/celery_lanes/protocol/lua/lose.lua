-- lose: record that this database is not the one that a process has used, or is an older state of it.
-- ARGV  known appended settled ended found found_appended found_settled
--       what the process knew: identity, totals, number of settled or buried messages; what it found: identity, totals
-- An older state gets a new identity, so that every other process notices too. Several processes may report one loss.
-- It is recorded once, with the highest numbers that any of them knew.
-- Returns {identity, the record (keys.LOSSES)}
local known, appended, settled, ended, found, found_appended, found_settled = unpack(ARGV, 1, 7)
appended, found_appended = tonumber(appended), tonumber(found_appended)

even_when_full()
local identity = redis.call('GET', IDENTITY)
if not identity or identity == known then identity = string.format('%.0f', now_us) end
redis.call('SET', IDENTITY, identity)

local is_older = found == known
local first, again = is_older and found_appended + 1 or 1, 0
-- Some of the missing settlements may belong to messages that are missing too.
if is_older then again = math.max(settled - found_settled - math.max(appended - found_appended, 0), 0) end
local at_ms, last, acknowledged = now_ms, appended, 0
local recorded = redis.call('HGET', LOSSES, identity)
if recorded then
  local of_last, of_ended, of_again
  at_ms, first, of_last, of_ended, of_again, acknowledged = string.match(recorded, string.rep('(%S+) ', 5) .. '(%S+)')
  last, ended, again = math.max(last, of_last), math.max(ended, of_ended), math.max(again, of_again)
end
local record = string.format('%.0f %.0f %.0f %.0f %.0f %.0f', at_ms, first, last, ended, again, acknowledged)
redis.call('HSET', LOSSES, identity, record)
return { identity, record }
