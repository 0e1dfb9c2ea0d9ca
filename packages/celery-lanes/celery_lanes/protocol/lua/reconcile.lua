-- reconcile: release messages that are leased to a holder which does not hold them, because a reply never arrived. No
-- attempt or death is counted.
-- With  ending
-- ARGV  holder
--       then id, once for each message that the holder holds
-- Returns how many were released
local holder = unpack(ARGV, 1, 1)

even_when_full()
local held, released = {}, 0
for i = 2, #ARGV do held[ARGV[i]] = true end
for _, id in ipairs(redis.call('ZRANGE', LEASES, 0, -1)) do
  if not held[id] then
    local found = redis.call('HMGET', MESSAGE .. id, 'state', 'holder')
    if found[1] == 'leased' and found[2] == holder then
      give_back(id, true)
      released = released + 1
    end
  end
end
count('released', released)
finish()
return released
