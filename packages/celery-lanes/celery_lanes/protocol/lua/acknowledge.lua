-- acknowledge: mark every recorded loss as seen by a person. The records stay, so that a process which notices a loss
-- later does not report it as a new one.
-- Returns the records that were not acknowledged before

even_when_full()
local records, found = {}, redis.call('HGETALL', LOSSES)
for i = 1, #found, 2 do
  local record, acknowledged = string.match(found[i + 1], '^(.*) (%d)$')
  if acknowledged == '0' then
    records[#records + 1] = found[i + 1]
    redis.call('HSET', LOSSES, found[i], record .. ' 1')
  end
end
return records
