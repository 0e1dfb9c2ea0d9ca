-- advance: record how far a schedule has come, and append the messages of its occurrences, in one step. Of several
-- processes that call it for the same occurrences, the first one does it.
-- With  places
-- ARGV  schedule known record until_ms
--       then id queue stored lanes, once for each message: `lanes` are keys joined by \n
--       `record` is what the caller keeps of the schedule; empty: it is removed. Nothing is changed unless the present
--       record is `known` (empty: there is none), or if `until_ms`, the time of the last occurrence, is still to come
-- Returns 1, or 0 if nothing was changed
local schedule, known, record, until_ms = unpack(ARGV, 1, 4)

if (redis.call('HGET', SCHEDULES, schedule) or '') ~= known or tonumber(until_ms) > now_ms then return 0 end

if record == '' then
  redis.call('HDEL', SCHEDULES, schedule)
else
  redis.call('HSET', SCHEDULES, schedule, record)
end
local added = 0
for i = 5, #ARGV, 4 do
  local id, queue, stored, lanes = unpack(ARGV, i, i + 3)
  if add_message(id, queue, lanes, stored) then added = added + 1 end
end
count('appended', added)
finish()
return 1
