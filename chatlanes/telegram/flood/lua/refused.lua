-- refused: Telegram answered a call with 429. Pauses its scope for all workers, and the whole bot if another scope is
-- refused too.
-- KEYS  1 pause of the bot  2 pause of the scope  3 refused  4 waits  5 counts
-- ARGV  scope wait_ms
-- Returns 1 if the whole bot is paused now, otherwise 0
local scope, wait_ms = unpack(ARGV, 1, 2)
wait_ms = tonumber(wait_ms)

local now_ms = math.floor(now_us / 1000)

local function expire_after(key, ms)
  if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, ms) end
end

-- A pause never becomes shorter.
local function pause(key, named, ms)
  if left_of(key) >= ms then return end
  redis.call('SET', key, ms, 'PX', ms)
  redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', now_ms)
  redis.call('ZADD', KEYS[4], now_ms + ms, named)
  expire_after(KEYS[4], ms)
end

even_when_full()
redis.call('HINCRBY', KEYS[5], 'refused', 1)
pause(KEYS[2], scope, wait_ms)
redis.call('SADD', KEYS[3], scope)
expire_after(KEYS[3], wait_ms)

-- Two scopes were refused and no call was accepted in between: the limit probably concerns the whole bot. The bot waits
-- for the shortest of the waits, which does the least harm if the limits concerned the chats after all.
local paused, shortest_ms = 0, wait_ms
for _, each in ipairs(redis.call('SMEMBERS', KEYS[3])) do
  local left_ms = left_of(KEYS[1] .. ':' .. each)
  if left_ms > 0 then
    paused, shortest_ms = paused + 1, math.min(shortest_ms, left_ms)
  else
    redis.call('SREM', KEYS[3], each)
  end
end
if paused < 2 then return 0 end
pause(KEYS[1], '*', shortest_ms)
return 1
